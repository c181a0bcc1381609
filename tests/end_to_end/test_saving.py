"""Nothing of a training is lost: saving is atomic, and a restart finds the newest whole file."""

import signal
import sys

import torch

import shape_fairseq.models  # noqa: F401 - lets torch load fairseq's checkpoints
from shape_fairseq import checkpoints
from tests import processes
from tests.end_to_end.commands import COMMANDS, run, train_options

ARCH = "transformer_shape_tiny"
OPTIONS = ("--save-interval-updates", "5", "--keep-interval-updates", "2")

# fairseq-train that kills itself in the middle of copying the Nth checkpoint.
KILLED_WHILE_COPYING = """
import os, shutil, signal, sys
from fairseq_cli.train import cli_main

copies = 0
N = int(sys.argv.pop(1))
def copy(source, target):
    global copies
    copies += 1
    with open(source, "rb") as read, open(target, "wb") as written:
        content = read.read()
        written.write(content[: len(content) // 2] if copies == N else content)
        if copies == N:
            written.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    return target

shutil.copyfile = copy
cli_main()
"""


def updates(path) -> int:
    return torch.load(path)["optimizer_history"][-1]["num_updates"]


def test_a_kill_while_copying_loses_nothing(data, tmp_path):
    options = train_options(data, tmp_path, ARCH, 15, *OPTIONS)
    result = processes.run(sys.executable, "-c", KILLED_WHILE_COPYING, 2, *options)
    assert result.returncode == -signal.SIGKILL, result.stderr[-2000:]
    last = tmp_path / "checkpoint_last.pt"
    assert checkpoints.is_whole(last) and updates(last) == 7  # the end of an epoch
    run("fairseq-train", *options)
    assert checkpoints.is_whole(last) and updates(last) == 15


def test_a_restart_takes_the_newest_whole_checkpoint_and_says_so(data, tmp_path):
    run("fairseq-train", *train_options(data, tmp_path, ARCH, 10, *OPTIONS))
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])
    (tmp_path / "checkpoint_2_10.pt").write_bytes(b"")
    result = run("fairseq-train", *train_options(data, tmp_path, ARCH, 12, *OPTIONS))
    output = result.stdout + result.stderr
    (line,) = (line for line in output.splitlines() if "is broken" in line)
    assert "going on from checkpoint_1_5.pt, the newest whole checkpoint" in line
    assert "Loaded checkpoint" in output and "@ 5 updates" in output
    assert updates(last) == 12

    for path in tmp_path.glob("checkpoint*.pt"):
        path.write_bytes(path.read_bytes()[:1000])
    result = run("fairseq-train", *train_options(data, tmp_path, ARCH, 14, *OPTIONS), check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert f"{last} is cut off after 1,000 bytes" in result.stderr.splitlines()[-1]


def test_every_save_has_a_number_at_the_end_of_an_epoch_too(data, tmp_path):
    options = ("--save-interval-updates", "7", "--no-epoch-checkpoints", "--no-last-checkpoints")
    run("fairseq-train", *train_options(data, tmp_path, ARCH, 14, *options))  # two epochs
    saved = {path.name: updates(path) for path in tmp_path.glob("checkpoint_*_*.pt")}
    assert saved == {"checkpoint_1_7.pt": 7, "checkpoint_2_14.pt": 14}


def test_a_full_disk_ends_a_training_in_one_line(data, tmp_path):
    save = tmp_path / "save"
    options = train_options(data, save, ARCH, 5, *OPTIONS)
    run("fairseq-train", *options)
    size = (save / "checkpoint_last.pt").stat().st_size
    limit = f"ulimit -f {size // 2048}; trap '' XFSZ; exec \"$@\""  # blocks of a KiB: half a file
    more = train_options(data, save, ARCH, 10, *OPTIONS)
    result = processes.run("bash", "-c", limit, "bash", COMMANDS / "fairseq-train", *more)
    assert result.returncode == 1
    last = [line for line in result.stderr.splitlines() if line.startswith("shape_fairseq: ")]
    assert len(last) == 1 and "free some space" in last[0]
    assert not list(save.glob("*.tmp"))
    assert updates(save / "checkpoint_last.pt") == 5
    run("fairseq-train", *more)
    assert updates(save / "checkpoint_last.pt") == 10
