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

# Each model with its number of ranks: one where SHAPE's and RPE's tests have shown all there is.
RANKS = {"cape": 2, "randomized": 1, "rope": 1, "alibi": 1, "t5_bias": 2}

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
    jobs = [(options, number, free_port()) for options, number in trainings]
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


def ranks(number: int, backend: str = "legacy_ddp") -> list[object]:
    several = ["--distributed-world-size", number, "--distributed-backend", "gloo"]
    return [*several, "--ddp-backend", backend] if number > 1 else []


@pytest.mark.slow
def test_resumed_bit_for_bit_with_activation_checkpoints_and_in_half_precision(data, tmp_path):
    options = ("--checkpoint-activations", "--save-interval-updates", 2)
    half = ("--fp16", "--fp16-no-flatten-grads", "--no-save")

    def trainings(folder: str, *more):
        return [
            (
                train_options(
                    *(data, tmp_path / name / folder, f"transformer_{name}_tiny"), *more, *ranks(n)
                ),
                n,
            )
            for name, n in RANKS.items()
        ]

    through = train_all(*trainings("through", 4, *options))
    for name in RANKS:
        (tmp_path / name / "resumed").mkdir()
        half_way = tmp_path / name / "through" / "checkpoint_1_2.pt"
        half_way.rename(tmp_path / name / "resumed" / "checkpoint_last.pt")
    resumed = train_all(*trainings("resumed", 4, *options))
    in_half = train_all(*trainings("half", 2, *half))
    for name in RANKS:
        logs, through = through[:4], through[4:]
        continued, resumed = resumed[:2], resumed[2:]
        short, in_half = in_half[:2], in_half[2:]
        assert [entry["num_updates"] for entry in continued] == ["3", "4"], name
        assert [entry["loss"] for entry in continued] == [e["loss"] for e in logs[2:]], name
        assert float(short[0]["loss"]) == pytest.approx(float(logs[0]["loss"]), abs=0.02), name
        first, second = (
            weights(tmp_path / name / folder / "checkpoint_last.pt")
            for folder in ("through", "resumed")
        )
        assert first.keys() == second.keys()
        assert [key for key in first if not first[key].equal(second[key])] == [], name
    assert through == resumed == in_half == []


@pytest.mark.slow
def test_a_table_that_all_layers_share_is_summed_over_ranks(data, tmp_path):
    """Without dropout nothing is random, so two ranks agree with two delayed batches."""
    arch, exact = "transformer_t5_bias_tiny", ("--dropout", "0", "--no-save")
    logs = train_all(
        (train_options(data, tmp_path / "a", arch, 4, *exact, "--update-freq", 2), 1),
        (train_options(data, tmp_path / "b", arch, 4, *exact, *ranks(2, "pytorch_ddp")), 2),
    )
    assert len(logs) == 8
    for one, both in zip(logs[:4], logs[4:], strict=True):
        assert one["wpb"] == both["wpb"]
        assert float(one["loss"]) == pytest.approx(float(both["loss"]), abs=0.002)
