"""Every command that a page shows is tried: for real, as a dry run, or as far as its options.

An indented block of a page holds commands; other code is fenced with its language. A command that
no line of HOW knows fails the test: say there how to try it.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.docs.parsing import Parsed, run_until_parsed
from tests.docs.test_docs import PAGES, TOP

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", flags=re.MULTILINE | re.DOTALL)
PARSE_FAIRSEQ = """
import sys
from fairseq import options
parser = options.get_{kind}_parser()
options.parse_args_and_arch(parser, sys.argv[1:])
"""


def really(command: str, folder: Path, monkeypatch) -> None:
    """Run it."""
    processes.succeed(shell(command, folder))


def dry(command: str, folder: Path, monkeypatch) -> None:
    """Run it without its work."""
    program, *words = shlex.split(command)
    if program == "make":
        processes.succeed(processes.run("make", "-n", *words, cwd=TOP))
    elif "experiment" in words:
        others = {"--dry-run", "--list", "--help"} & set(words)
        processes.succeed(shell(command if others else f"{command} --dry-run", folder))
    else:
        processes.succeed(shell(command, folder, DRY_RUN=1, GPUS=0))


def without_sources(command: str, folder: Path, monkeypatch) -> None:
    """data_prep starts, and says that it misses what it should work on."""
    result = shell(command, folder, RAW=folder / "missing", TRAIN_PAIRS=0)
    assert result.returncode == 1 and result.stderr.startswith("error: "), result.stderr


def parse(command: str, folder: Path, monkeypatch) -> None:
    """Its options are right; it would need a training to go on."""
    command = re.sub(r" [<>|].*", "", re.sub(r"\$[A-Z]\b", "checkpoint.pt", command))
    words = shlex.split(re.sub(r"^(\w+=\S+ )*", "", command))
    arguments = ["shape_fairseq", *words[1:]] if words[0] == "shape-fairseq" else words[2:]
    with pytest.raises(Parsed):
        run_until_parsed(arguments, monkeypatch)


def parse_fairseq(command: str, folder: Path, monkeypatch) -> None:
    """fairseq knows all options; it would need a data-bin to go on."""
    command = command.replace("$(shape-fairseq user-dir)", str(TOP / "shape_fairseq"))
    program, *words = shlex.split(command)
    kind = {"fairseq-train": "training", "fairseq-generate": "generation"}[program]
    code = PARSE_FAIRSEQ.format(kind=kind)
    processes.succeed(processes.run(sys.executable, "-c", code, *words))


def with_translations(command: str, folder: Path, monkeypatch) -> None:
    """It gets what fairseq-generate could have written."""
    lines = ["S-0\ta d@@ og", "H-0\t-0.5\tein H@@ und <sep> er bel@@ lt .", "P-0\t-0.1"]
    (folder / "generated.txt").write_text("\n".join(lines) + "\n")
    result = processes.succeed(shell(command, folder))
    assert result.stdout == "ein Hund\ner bellt.\n"


def not_here(reason: str):
    """What no test can try, and why."""
    return reason


HOW = {
    r"make (demo|demo-full|test|test-quick|format|bench .*)": dry,
    r"make setup && source": not_here("makes an environment; every run of the tests starts so"),
    r"bash \.ci/run": not_here("runs these tests"),
    r"apt-get install": not_here("changes the machine"),
    r"echo .* \| gcc ": really,
    r"pip install": not_here("downloads; the workflow plain-pip does it on four Pythons"),
    r"chromium ": not_here("needs the report of make demo; test_report.py opens a report"),
    r"(\w+=\S+ )*python -m pytest": not_here("tests that run anyway"),
    r"python docs/draw_\w+\.py": not_here("writes into docs/; test_docs.py compares the drawings"),
    r"shape-fairseq experiment ": dry,
    r"fairseq-(train|generate) ": parse_fairseq,
    r"(\w+=\S+ )*bash data_prep/prepare_\w+\.sh": without_sources,
    r"(\w+=\S+ )*bash recipes/(adapt|evaluate)\.sh": not_here(
        "need a training; tests/recipes/test_training.py and test_evaluation.py run them after one"
    ),
    r"""(\w+=("[^"]*"|\S+) )*bash recipes/\w+\.sh""": dry,
    r"(export )?[A-Z_]+=\S+( [A-Z_]+=\S+)*$": really,
    r"for model in ape shape rpe; do": not_here("trains three models; each line is tried above"),
    r"echo .* \| shape-fairseq translate": not_here("needs a model; test_production.py runs it"),
    r"(\w+=\S+ )*sbatch": not_here("needs a cluster; tests/recipes/test_slurm.py has one"),
    r"grep \^H generated\.txt": with_translations,
    r"shape-fairseq [a-z-]+ ": parse,
    r"(\w+=\S+ )*python -m (benchmarks|data_prep|shape_fairseq)": parse,
}


def blocks(text: str) -> Iterator[list[str]]:
    """The indented blocks of a page, but for lists, whose text is indented as well."""
    block: list[str] = []
    before = ""  # the line above the block
    for line in [*FENCE.sub("", text).splitlines(), "end"]:
        if line.startswith("    ") and (block or not before.strip() or before.startswith("#")):
            block.append(line[4:])
            continue
        if block and line.strip():
            yield block
            block = []
        if not block:
            before = line


def commands(block: list[str]) -> Iterator[str]:
    """The commands of a block, a line that is continued with its continuation."""
    command = ""
    for line in block:
        command += re.sub(r"\s+# .*$", "", line)
        if command.endswith("\\"):
            command = command[:-1].rstrip() + " "
        elif command.endswith("|"):
            command += " "
        elif command.startswith("for ") and not command.endswith("done"):
            command += "\n"
        else:
            if command.strip():
                yield re.sub(r" {2,}", " ", command.strip())
            command = ""


SHOWN = [
    (page.relative_to(TOP).as_posix(), command)
    for page in PAGES
    if page.name != "CHANGELOG.md" and "results" not in page.parts  # these tell what was run once
    for block in blocks(page.read_text(encoding="utf-8"))
    for command in commands(block)
]


def how(command: str):
    """The first line of HOW that knows the command."""
    for pattern, way in HOW.items():
        if re.match(pattern, command):
            return way
    return None


def shell(command: str, folder: Path, **variables: object):
    """A command as it is typed in a clone."""
    environment = processes.environment(**variables)
    environment["PATH"] = os.pathsep.join([str(folder / "bin"), environment["PATH"]])
    return processes.run("bash", "-c", command, cwd=folder, env=environment)


@pytest.fixture
def clone(tmp_path) -> Path:
    """A folder that looks like a clone with its environment active, and keeps what is written."""
    for name in ("recipes", "data_prep", "shape_fairseq", "benchmarks"):
        (tmp_path / name).symlink_to(TOP / name)
    program = tmp_path / "bin" / "shape-fairseq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shape_fairseq "$@"\n')
    program.chmod(0o755)
    return tmp_path


def test_every_page_shows_a_command():
    pages = {page for page, _ in SHOWN}
    names = {p.relative_to(TOP).as_posix() for p in PAGES if "docs" in p.parts} | {"README.md"}
    # What is in results was run once.
    assert {name for name in names - pages if not name.startswith("docs/results/")} == set()


def test_every_line_of_how_is_needed():
    unused = set(HOW) - {
        next((pattern for pattern in HOW if re.match(pattern, command)), "") for _, command in SHOWN
    }
    assert unused == set()


def with_marks(command: str):
    """What imports torch takes seconds."""
    is_slow = how(command) is parse_fairseq or "benchmarks" in command
    return pytest.param(command, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("command", [with_marks(c) for c in dict.fromkeys(c for _, c in SHOWN)])
def test_a_command_of_the_pages_works(command, clone, monkeypatch):
    way = how(command)
    if way is None:
        pages = sorted({page for page, shown in SHOWN if shown == command})
        pytest.fail(f"{pages} shows {command!r}: say in HOW how to try it")
    if isinstance(way, str):
        pytest.skip(way)
    way(command, clone, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_fenced_code_is_code(page, clone, monkeypatch):
    """TOML is an experiment that could start, Python can be read and its imports are there."""
    code: dict[str, list[str]] = {}
    for indent, language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        lines = [line.removeprefix(indent) for line in text.splitlines()]
        code.setdefault(language, []).append("\n".join(lines))
    assert code.keys() <= {"bibtex", "python", "text", "toml"}
    if "toml" in code:  # all of a page are parts of one file
        (clone / "mine.toml").write_text("\n".join(code["toml"]), encoding="utf-8")
        dry("shape-fairseq experiment mine.toml", clone, monkeypatch)
    for part in code.get("python", []):
        compile(part.rstrip(","), str(page), "exec")
        imports = [line for line in part.splitlines() if line.startswith(("from ", "import "))]
        exec("\n".join(imports), {})
