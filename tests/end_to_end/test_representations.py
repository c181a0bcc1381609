"""All newer models through fairseq-train: two ranks, half precision, resumed bit for bit."""

import json
import os
import socket
import subprocess
import sys

import pytest
from fairseq import checkpoint_utils

from shape_fairseq.compat import FAST_PATH_COPIES
from tests.end_to_end.commands import REPOSITORY, logged_updates, train_options

ARCHS = [f"transformer_{name}_tiny" for name in ("cape", "randomized", "rope", "alibi", "t5_bias")]
RELATIVE = ARCHS[2:]

# fairseq-train as torchrun would start it, in processes that share one import of torch and fairseq.
TRAININGS = """
import json, os, sys
from fairseq_cli import train

for options, ranks, port in json.load(sys.stdin):
    children = []
    for rank in range(ranks):
        if child := os.fork():
            children.append(child)
            continue
        if ranks > 1:
            places = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
            os.environ.update(MASTER_ADDR="127.0.0.1", **{k: str(v) for k, v in places.items()})
        sys.argv = ["fairseq-train", *options]
        train.cli_main()
        sys.stdout.flush()
        os._exit(0)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"failed: {options}")
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train_all(*trainings: tuple[list[str], int]) -> list[dict]:
    """Train one after the other, each with its number of ranks; returns all logged updates."""
    jobs = [(options, ranks, free_port()) for options, ranks in trainings]
    result = subprocess.run(
        [sys.executable, "-c", TRAININGS],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-3000:]
    return logged_updates(result)


def weights(path) -> dict:
    """The model's weights, without what each version of fairseq makes for itself."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]
    made = ("_float_tensor", *FAST_PATH_COPIES)
    return {name: tensor for name, tensor in state.items() if name.split(".")[-1] not in made}


@pytest.mark.slow
def test_two_ranks_resume_bit_for_bit_and_half_precision_trains(data, tmp_path):
    two = ("--distributed-world-size", 2, "--distributed-backend", "gloo")
    saves = ("--save-interval-updates", 2, "--keep-interval-updates", 1)
    half = ("--fp16", "--fp16-no-flatten-grads", "--no-save")

    def training(arch: str, folder: str, updates: int):
        options = (*two, *saves, "--checkpoint-activations")
        return train_options(data, tmp_path / arch / folder, arch, updates, *options), 2

    trainings = []
    for arch in ARCHS:
        trainings += [training(arch, "through", 4), training(arch, "resumed", 2)]
        trainings += [training(arch, "resumed", 4)]
        trainings += [(train_options(data, tmp_path / arch / "half", arch, 2, *half), 1)]
    logs = train_all(*trainings)
    for arch in ARCHS:
        entries, logs = logs[:10], logs[10:]
        updates = [int(entry["num_updates"]) for entry in entries]
        assert updates == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2], arch
        losses = [float(entry["loss"]) for entry in entries]
        assert losses[:4] == losses[4:8], arch
        assert abs(losses[8] - losses[0]) < 0.5, arch  # one rank has half of the sentences
        through, resumed = (
            weights(tmp_path / arch / folder / "checkpoint_last.pt")
            for folder in ("through", "resumed")
        )
        assert through.keys() == resumed.keys()
        assert [name for name in through if not through[name].equal(resumed[name])] == [], arch
    assert logs == []


@pytest.mark.slow
@pytest.mark.parametrize("arch", RELATIVE)
def test_two_ranks_agree_with_two_delayed_batches(data, tmp_path, arch):
    """Without dropout nothing is random, so the sums must agree; T5's table is in all layers."""
    exact = ("--dropout", "0", "--ddp-backend")
    two = ("pytorch_ddp", "--distributed-world-size", 2, "--distributed-backend", "gloo")
    logs = train_all(
        (train_options(data, tmp_path / "a", arch, 4, *exact, "legacy_ddp", "--update-freq", 2), 1),
        (train_options(data, tmp_path / "b", arch, 4, *exact, *two), 2),
    )
    assert len(logs) == 8
    for one, both in zip(logs[:4], logs[4:], strict=True):
        assert one["wpb"] == both["wpb"]
        assert float(one["loss"]) == pytest.approx(float(both["loss"]), abs=0.002)
