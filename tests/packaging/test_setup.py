"""What setup.sh says before it starts and when a step fails; the version's one place."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def set_up(folder: Path, python: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(TOP / "setup.sh"), str(folder / "venv"), python],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def test_what_is_missing_is_told_before_anything_is_made(tmp_path):
    if sys.version_info[:2] == (3, 12):
        pytest.skip("nothing is compiled on Python 3.12")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "df", "awk"):
        (tools / name).symlink_to(shutil.which(name))
    run = set_up(tmp_path, sys.executable, PATH=str(tools))
    assert run.returncode == 1
    assert run.stderr.startswith("setup: missing: a C++ compiler, for fairseq (Debian: apt-get")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "venv").exists()


def test_no_python_is_one_line(tmp_path):
    run = set_up(tmp_path, "python9")
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        "setup: missing: no Python at 'python9': make setup PYTHON=..."
    ]


@pytest.mark.slow
def test_a_failing_step_points_to_its_log(tmp_path):
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_EXTRA_INDEX_URL": ""}
    run = set_up(tmp_path, sys.executable, PIP_CONFIG_FILE=os.devnull, **offline)
    assert run.returncode == 1
    log = tmp_path / "venv" / "setup.log"
    assert run.stderr.splitlines()[-1] == f"setup: pip failed: all of pip's output is in {log}"
    assert "ERROR:" in log.read_text()


def test_the_version_has_its_entry_in_the_changelog():
    version = re.search(r'version="([^"]+)"', (TOP / "setup.py").read_text())[1]
    assert f"\n## {version} - " in (TOP / "CHANGELOG.md").read_text()
