"""Training through fairseq-train: exact, resumable, in half precision."""

import signal
import time

import pytest
from fairseq import checkpoint_utils

from shape_fairseq.compat import FAST_PATH_COPIES
from tests import processes
from tests.end_to_end.commands import COMMANDS, USER_DIR, run, train, train_options

ARCHS = ["transformer_shape_tiny", "transformer_rpe_tiny"]


def weights(path):
    """The model's weights; fairseq 0.12.2's unused copies of them left out."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]
    return {k: v for k, v in state.items() if k.split(".")[-1] not in FAST_PATH_COPIES}


def assert_same_weights(first, second):
    first, second = weights(first), weights(second)
    assert first.keys() == second.keys()
    different = [name for name in first if not first[name].equal(second[name])]
    # A buffer without meaning: fairseq 0.12.2 stores uninitialized memory in it.
    assert [name for name in different if "_float_tensor" not in name] == []


def losses(logs):
    return [(entry["num_updates"], entry["loss"], entry["gnorm"]) for entry in logs]


def test_without_shift_it_is_bit_for_bit_fairseqs_transformer(data, tmp_path):
    stock = train(data, tmp_path / "stock", "transformer_tiny", 15)
    shape = train(data, tmp_path / "shape", "transformer_shape_tiny", 15, "--max-shift", "0")
    assert len(stock) == 15
    assert losses(shape) == losses(stock)
    assert_same_weights(
        tmp_path / "stock" / "checkpoint_last.pt", tmp_path / "shape" / "checkpoint_last.pt"
    )


def test_stock_and_shape_checkpoints_load_into_each_other(data, trained, tmp_path):
    """--finetune-from-model both ways: the heir starts where the donor's 60 updates ended."""
    untrained = 5.3  # log2 of the 40 symbols, the loss of a model that knows nothing
    for donor, heir in (
        ("transformer_tiny", "transformer_shape_tiny"),
        ("transformer_shape_tiny", "transformer_tiny"),
    ):
        options = ("--finetune-from-model", trained(donor), "--dropout", "0", "--lr", "0.000001")
        no_shift = ("--max-shift", "0") if "shape" in heir else ()
        logs = train(data, tmp_path / heir, heir, 2, *options, *no_shift)
        assert float(logs[0]["loss"]) < untrained - 0.5


@pytest.mark.parametrize("arch", ARCHS)
def test_half_precision_trains_and_generates(data, tmp_path, arch):
    logs = train(data, tmp_path, arch, 30, "--fp16", "--fp16-no-flatten-grads")
    assert float(logs[-1]["loss"]) < float(logs[0]["loss"])
    assert float(logs[-1]["loss_scale"]) > 0
    checkpoint = tmp_path / "checkpoint_last.pt"
    result = run(
        "fairseq-generate",
        *(data, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--fp16"),
        *("--max-tokens", "400", "--required-batch-size-multiple", "1"),
    )
    assert result.stdout.count("\nH-") == 20


@pytest.mark.parametrize("arch", ARCHS)
def test_checkpointed_activations_and_delayed_updates(data, tmp_path, arch):
    options = ("--update-freq", "2", "--max-update", "4")
    plain = train(data, tmp_path / "plain", arch, 4, *options)
    checkpointed = train(
        data, tmp_path / "checkpointed", arch, 4, *options, "--checkpoint-activations"
    )
    assert len(plain) == 4
    for first, second in zip(plain, checkpointed, strict=True):
        assert float(first["loss"]) == pytest.approx(float(second["loss"]), abs=0.002)


@pytest.mark.parametrize("arch", ARCHS)
def test_killed_between_saves_and_resumed_it_ends_the_same(data, tmp_path, arch):
    options = ("--save-interval-updates", "10", "--keep-interval-updates", "1")
    through, killed = tmp_path / "through", tmp_path / "killed"
    train(data, through, arch, 40, *options)

    log = tmp_path / "log"
    with log.open("w") as output:
        # A training that would never end by itself, so that the kill comes before the end.
        endless = train_options(data, killed, arch, 10**6, *options)
        process = processes.start(
            COMMANDS / "fairseq-train", *endless, stdout=output, stderr=output
        )
    saved = killed / "checkpoint_last.pt"
    deadline = time.monotonic() + 120
    while not saved.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert saved.exists(), log.read_text()[-3000:]
    done = checkpoint_utils.load_checkpoint_to_cpu(str(saved))["optimizer_history"][-1]
    assert 0 < done["num_updates"] < 40

    train(data, killed, arch, 40, *options)
    assert_same_weights(through / "checkpoint_last.pt", saved)
