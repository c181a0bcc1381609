import subprocess
import sys
from pathlib import Path

import shape_fairseq


def shape_fairseq_command(*arguments):
    command = [sys.executable, "-m", "shape_fairseq", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_user_dir_is_the_only_line_on_standard_output():
    result = shape_fairseq_command("user-dir")
    assert result.stdout.splitlines() == [str(Path(shape_fairseq.__file__).parent)]


def test_help_names_the_commands():
    assert "user-dir" in shape_fairseq_command("--help").stdout


def test_an_unknown_command_is_refused():
    result = shape_fairseq_command("nonsense")
    assert result.returncode == 2
    assert "invalid choice: 'nonsense'" in result.stderr
