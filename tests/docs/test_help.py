"""Every --help has an example, and it is one: its options are right, and so are its paths."""

import re
import shlex

import pytest

from shape_fairseq.__main__ import COMMANDS, GROUPS
from tests import processes
from tests.docs.parsing import Parsed, run_until_parsed
from tests.docs.test_docs import PAGES

TOP = processes.REPOSITORY


def modules_with_options() -> list[str]:
    """All modules that `python -m` starts and that read options."""
    paths = [
        path
        for folder in ("shape_fairseq", "data_prep", "benchmarks")
        for path in sorted((TOP / folder).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return [
        ".".join(path.relative_to(TOP).with_suffix("").parts)
        for path, text in texts.items()
        if 'if __name__ == "__main__"' in text and "Parser(" in text
    ]


PROGRAMS = {
    "shape-fairseq": ["shape_fairseq"],
    **{f"shape-fairseq {name}": ["shape_fairseq", name] for name in COMMANDS},
    **{f"python -m {name}": [name] for name in modules_with_options()},
}
SCRIPTS = sorted(
    path
    for pattern in ("recipes/*.sh", "data_prep/prepare_*.sh")
    for path in TOP.glob(pattern)
    if path.name != "common.sh"
)
# What they need besides DATA is made by a training: tests/recipes runs them after one.
NEEDS_A_TRAINING = {"adapt.sh", "evaluate.sh"}


HELP: dict[str, str] = {}  # of every program, once it was asked for


def help_of(program: str, monkeypatch, capsys) -> str:
    if program in HELP:
        return HELP[program]
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
        run_until_parsed([*PROGRAMS[program], "--help"], patch)
    assert end.value.code == 0
    HELP[program] = capsys.readouterr().out
    return HELP[program]


def example_in(text: str) -> str:
    """The last lines of a help text, with continued lines joined."""
    head, found, example = text.partition("\nexample:\n")
    assert found, f"no example:\n{head}"
    return example.strip().replace("\\\n", " ")


def with_marks(program: str):
    """What imports torch takes seconds."""
    return pytest.param(program, marks=[pytest.mark.slow] if "benchmarks" in program else [])


@pytest.mark.parametrize("program", [with_marks(program) for program in PROGRAMS])
def test_the_example_of_a_command_has_the_right_options(program, monkeypatch, capsys):
    example = example_in(help_of(program, monkeypatch, capsys))
    assert example == program or example.startswith(f"{program} ")
    command, _, _ = example.partition(" <")
    arguments = shlex.split(command)[len(program.split()) :]
    with pytest.raises(Parsed):
        run_until_parsed([*PROGRAMS[program], *arguments], monkeypatch)


@pytest.mark.slow
def test_examples_name_what_the_demo_leaves(monkeypatch, capsys):
    """After `make demo` those of the help and of the pages can be pasted."""
    demo = processes.shape_fairseq("experiment", TOP / "recipes" / "demo.toml", "--dry-run").stdout
    trainings = {f"{name}/" for name in re.findall(r"runs/demo/checkpoints/[\w-]+", demo)}
    assert trainings
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    examples = [example_in(help_of(program, monkeypatch, capsys)) for program in PROGRAMS]
    for text in pages + examples:
        for name in re.findall(r"runs/demo/checkpoints/[\w-]+", text):
            assert any(training.startswith(name) for training in trainings), name


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_example_of_a_script_works(script, tmp_path):
    text = processes.succeed(processes.run("bash", script, "--help")).stdout
    source = script.read_text(encoding="utf-8")
    example = re.search(r"^#   Example: (.+)$", source, flags=re.MULTILINE)
    assert example, f"{script.name} has no example"
    assert example[1] in text or "shape-fairseq experiment" in text
    if script.name in NEEDS_A_TRAINING:
        return
    # Recipes have a dry run. data_prep starts and misses its sources, or cannot make an empty text.
    environment = processes.environment(DRY_RUN=1, RAW=tmp_path / "missing", PYTHONUTF8=1)
    command = example[1].replace(" data_prep/", f" {TOP}/data_prep/")
    command = command.replace(" recipes/", f" {TOP}/recipes/")
    command = re.sub("^TRAIN_PAIRS=[0-9]+", "TRAIN_PAIRS=0", command)
    result = processes.run("bash", "-c", command, env=environment, cwd=tmp_path)
    if script.parent.name == "recipes":
        processes.succeed(result)
        assert "fairseq-train" in result.stdout or "recipes/" in result.stdout
    else:
        assert result.returncode == 1 and result.stderr.startswith("error: "), result.stderr


def test_without_a_command_they_are_shown_in_their_groups():
    result = processes.shape_fairseq()
    assert result.returncode == 2 and result.stderr == ""
    places = [result.stdout.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    order = [result.stdout.index(f"\n  {name} ") for name in COMMANDS]
    assert order == sorted(order)
