import sys
from pathlib import Path

import pytest

import shape_fairseq
from shape_fairseq.__main__ import COMMANDS
from tests import processes

HELP = {
    "": ["--help"],
    **{name: [name, *(["--help"] if module else [])] for name, (module, _) in COMMANDS.items()},
}
LISTS_IMPORTS = """
import sys
from shape_fairseq.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_user_dir_is_the_only_line_on_standard_output():
    result = processes.shape_fairseq("user-dir")
    assert result.stdout.splitlines() == [str(Path(shape_fairseq.__file__).parent)]


def test_help_names_the_commands():
    output = processes.shape_fairseq("--help").stdout
    assert [name for name in COMMANDS if name not in output] == []


def test_an_unknown_command_is_refused():
    result = processes.shape_fairseq("nonsense")
    assert result.returncode == 2
    assert "invalid choice: 'nonsense'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", HELP)
def test_help_imports_neither_torch_nor_fairseq(command):
    result = processes.run(sys.executable, "-c", LISTS_IMPORTS, *HELP[command])
    assert result.returncode == 0 and result.stdout
    imported = set(result.stderr.split())
    assert "shape_fairseq" in imported
    assert imported & {"torch", "fairseq", "matplotlib", "ctranslate2"} == set()


@pytest.mark.parametrize("command", list(COMMANDS)[1:])
def test_a_wrong_option_is_one_line(command):
    result = processes.shape_fairseq(command, "--no-such-option=1")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize("stream", ["<&-", ">&-"])
def test_a_closed_stream_is_no_traceback(stream, tmp_path):
    command = f'"{sys.executable}" -m shape_fairseq tables "{tmp_path}" {stream}'
    result = processes.run("bash", "-c", command)
    assert "Traceback" not in result.stderr and "Exception" not in result.stderr
    assert len(result.stderr.splitlines()) <= 1, result.stderr
