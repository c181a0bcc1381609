"""Bad input ends in one clear line, and a checkpoint is somebody else's file."""

import os
import sys

import pytest
import torch

import shape_fairseq.models  # noqa: F401 - torch.load then reads what fairseq writes
from tests import processes
from tests.end_to_end.commands import COMMANDS, REPOSITORY, USER_DIR, run, train_options


class RunsOnLoad:
    """What a malicious checkpoint holds: a call that pickle makes while loading."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_malicious_checkpoint_is_refused_and_nothing_of_it_runs(data, trained, tmp_path):
    state = torch.load(trained("transformer_shape_tiny"))
    marker = tmp_path / "it-ran"
    bad = tmp_path / "bad.pt"
    torch.save({**state, "extra_state": RunsOnLoad(marker)}, bad)
    result = run(
        "fairseq-generate", data, "--user-dir", USER_DIR, "--path", bad, "--cpu", check=False
    )
    assert result.returncode != 0
    assert not marker.exists()
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"shape_fairseq: error: {bad} was not loaded")
    assert "mkdir" in last and "nothing of it was run" in last
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("shape", ["--max-shift", "-1"], "--max-shift must be an integer of at least 0, got -1"),
        ("shape", ["--max-shift", "1.5"], "--max-shift must be an integer of at least 0, got 1.5"),
        ("rpe", ["--max-relative-distance", "x"], "must be an integer of at least 0, got x"),
        ("shape", ["--encoder-learned-pos"], "drop --encoder-learned-pos"),
        ("shape", ["--encoder-embed-dim", "65"], "--encoder-embed-dim is 65"),
    ],
)
def test_wrong_options_end_before_any_work(data, tmp_path, arch, options, message):
    save = tmp_path / "save"
    command = train_options(data, save, f"transformer_{arch}_tiny", 2, *options)
    result = run("fairseq-train", *command, check=False)
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if "INFO" not in line]
    errors = [line for line in lines if line.startswith("shape_fairseq: error: ")]
    assert len(errors) == 1 and message in errors[0]
    assert "Traceback" not in result.stderr and "usage:" not in result.stderr
    assert not save.exists()


def test_without_fairseq_one_line_says_what_to_install():
    # -S hides the environment's packages, as if nothing had been installed.
    result = processes.run(sys.executable, "-S", "-c", "import shape_fairseq.models")
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "shape_fairseq needs fairseq: run `make setup`, or `pip install shape-fairseq`"
    )


def test_an_old_python_is_told_so():
    """No old Python may be at hand, so this one reports a lower version."""
    program = "import sys; sys.version_info = (3, 8, 1); import shape_fairseq.compat"
    result = processes.run(sys.executable, "-c", program)
    assert result.returncode == 1
    assert result.stderr.strip() == "shape_fairseq needs Python 3.10 or newer, this is 3.8"


def test_make_refuses_a_python_that_is_not_there(tmp_path):
    result = processes.run("make", "-C", REPOSITORY, "setup", f"PYTHON={tmp_path / 'python'}")
    assert result.returncode != 0
    assert f"no Python at '{tmp_path / 'python'}'" in result.stderr
    assert COMMANDS.is_dir()
