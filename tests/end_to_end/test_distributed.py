"""Data parallelism: two real ranks over gloo."""

import json
import socket
from pathlib import Path

import pytest

from tests.end_to_end.commands import COMMANDS, logged_updates, run, train, train_options

ARCHS = ["transformer_shape_tiny", "transformer_rpe_tiny"]

SPY = '''
"""shape_fairseq, with every draw of offsets written down."""
import json
import os

import shape_fairseq.models
from shape_fairseq.modules import positions

draw = positions.draw_offsets


def draw_and_tell(*args):
    offsets = draw(*args)
    with open(os.environ["OFFSETS"] + os.environ["RANK"], "a") as file:
        file.write(json.dumps(offsets.flatten().tolist()) + "\\n")
    return offsets


positions.draw_offsets = draw_and_tell
'''


def train_two_ranks(data, save, arch, updates, *more, **environment):
    """fairseq-train under torchrun on this machine's CPU."""
    ranks = ("--distributed-world-size", "2", "--distributed-backend", "gloo")
    options = train_options(data, save, arch, updates, *ranks, *more)
    launcher = ("--nproc_per_node", "2", "--master_port", free_port())
    return logged_updates(
        run("torchrun", *launcher, COMMANDS / "fairseq-train", *options, **environment)
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("arch", ARCHS)
def test_two_ranks_agree_with_two_delayed_batches(data, tmp_path, arch):
    # Without dropout and shift nothing is random, so the sums must agree.
    exact = ("--dropout", "0", *(("--max-shift", "0") if "shape" in arch else ()))
    alone = train(data, tmp_path / "alone", arch, 6, *exact, "--update-freq", "2")
    assert len(alone) == 6
    for backend in ("legacy_ddp", "pytorch_ddp"):
        save = tmp_path / backend
        both = train_two_ranks(data, save, arch, 6, *exact, "--ddp-backend", backend)
        for one, two in zip(alone, both, strict=True):
            assert one["wpb"] == two["wpb"]
            assert float(one["loss"]) == pytest.approx(float(two["loss"]), abs=0.002)


def test_ranks_draw_different_offsets_and_repeat_them_with_the_seed(data, tmp_path):
    spy = tmp_path / "spy_user_dir"
    spy.mkdir()
    (spy / "__init__.py").write_text(SPY)
    drawn = {}
    for attempt in ("first", "second"):
        path = tmp_path / f"offsets-{attempt}-"
        options = ("--user-dir", spy, "--max-shift", "500", "--dropout", "0")
        save = tmp_path / attempt
        train_two_ranks(data, save, "transformer_shape_tiny", 3, *options, OFFSETS=str(path))
        drawn[attempt] = [
            [json.loads(line) for line in Path(f"{path}{rank}").read_text().splitlines()]
            for rank in range(2)
        ]
    assert drawn["first"] == drawn["second"]
    rank0, rank1 = drawn["first"]
    assert len(rank0) == len(rank1) == 6  # source and target in three updates
    for ours, theirs in zip(rank0, rank1, strict=True):
        common = min(len(ours), len(theirs))
        equal = sum(a == b for a, b in zip(ours[:common], theirs[:common], strict=True))
        assert equal < common / 2
