"""Bad checkpoints against every command that loads one: none runs code, hangs or shows a traceback.

The commands run in this process, through the functions that their scripts call: 200 cases in a
minute. Hypothesis prints the seed of a failure; --hypothesis-seed repeats it.
"""

import copy
import io
import logging
import os
import random
import shutil
import signal
import sys
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq_cli import generate, interactive, train, validate
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import shape_fairseq.models  # noqa: F401 - registers the models
from shape_fairseq import errors
from shape_fairseq.__main__ import COMMANDS
from tests import processes
from tests.end_to_end.commands import USER_DIR, run, train_options

SECONDS = 60  # for one case, on a busy machine
SEED = int(os.environ.get("SHAPE_SEED", random.randrange(10**6)))
CASES = int(os.environ.get("SHAPE_CASES", 8))


class RunsOnLoad:
    """What a malicious checkpoint holds: a call that pickle makes while loading."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture(scope="session")
def folder(data, trained, tmp_path_factory) -> Path:
    """A data folder as data_prep leaves it, with a good checkpoint and a place for bad ones."""
    folder = tmp_path_factory.mktemp("bad")
    shutil.copytree(data, folder / "data" / "vanilla")
    (folder / "data" / "text" / "vanilla").mkdir(parents=True)
    for name in ("train.en", "train.de"):
        shutil.copy(data.parent / name, folder / "data" / "text" / "vanilla")
    for name in ("dict.txt", "parameters.txt"):
        shutil.copy(data / "dict.en.txt", folder / "data" / name)
    shutil.copy(trained("transformer_shape_tiny"), folder / "good.pt")
    return folder


def fairseq_command(main, *options):
    def call(folder: Path, checkpoint: Path) -> None:
        data = folder / "data" / "vanilla"
        sys.argv = ["fairseq", str(data), "--user-dir", str(USER_DIR), "--path", str(checkpoint)]
        sys.argv += ["--cpu", "--num-workers", "0", *options]
        sys.stdin = io.StringIO("w1 w2\n")
        main()

    return call


def resumed_training(folder: Path, checkpoint: Path) -> None:
    """fairseq-train that goes on from a checkpoint, for two more updates."""
    data, save = folder / "data" / "vanilla", folder / "out"
    more = ("--max-shift", "5", "--restore-file", checkpoint, "--no-save")
    sys.argv = ["fairseq", *train_options(data, save, "transformer_shape_tiny", 62, *more)]
    train.cli_main()


def our_command(name: str, *options: str):
    def call(folder: Path, checkpoint: Path) -> None:
        import importlib

        places = {"CHECKPOINT": checkpoint, "FOLDER": checkpoint.parent, "DATA": folder / "data"}
        words = [str(places.get(word, word)) for word in options]
        words = [word.replace("CHECKPOINT", str(checkpoint)) for word in words]
        output = str(folder / "out")
        words = [output if word == "OUT" else word for word in words]
        module = importlib.import_module(COMMANDS[name][0], "shape_fairseq")
        errors.run(lambda: module.main(words))

    return call


def from_pretrained(folder: Path, checkpoint: Path) -> None:
    data = folder / "data" / "vanilla"
    hub = TransformerModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))
    hub.eval().translate("w1 w2", beam=1)


LOADERS = {
    "fairseq-generate": fairseq_command(
        generate.cli_main, "--beam", "1", "--max-len-b", "5", "--max-tokens", "400"
    ),
    "fairseq-interactive": fairseq_command(interactive.cli_main, "--beam", "1", "--max-len-b", "5"),
    "fairseq-validate": fairseq_command(
        validate.cli_main, "--task", "translation", "--max-tokens", "400"
    ),
    "from_pretrained": from_pretrained,
    "fairseq-train": resumed_training,
    "average": our_command("average", "FOLDER", "--number", "1", "--output", "OUT"),
    "export --to fairseq": our_command("export", "CHECKPOINT", "--to", "fairseq", "OUT"),
    "export --to ctranslate2": our_command(
        *("export", "CHECKPOINT", "--to", "ctranslate2", "OUT", "--data", "DATA", "--tokens"),
    ),
    "speed": our_command(
        *("speed", "--data", "DATA", "--out", "OUT", "--cpu", "--setting", "vanilla"),
        *("--turns", "1", "ape=CHECKPOINT"),
    ),
    "similarity": our_command(
        *("similarity", "--data", "DATA", "--out", "OUT", "--cpu", "--sequences", "1"),
        *("--setting", "vanilla", "--offsets", "0", "5", "--", "ape=CHECKPOINT"),
    ),
    "token-scores": our_command(
        *("token-scores", "--data", "DATA", "--out", "OUT", "--cpu"),
        *("--setting", "vanilla", "--trained-length", "10", "--width", "2"),
        *("ape=CHECKPOINT", "shape=CHECKPOINT"),
    ),
}

PAYLOAD = "__import__('os').mkdir({marker!r}) or [10]"
VALUES = st.one_of(
    st.just(PAYLOAD),
    st.sampled_from(["${oc.env:HOME}", "${model.arch}", "", "[1, 2", "x" * 5000, "../..", "fasta"]),
    st.sampled_from(
        ["fconv", "lightconv", "transformer_rpe", "translation_moe", "audio_finetuning"]
    ),
    st.integers(-3, 3),
    st.sampled_from([10**6, 10**9, 10**18, -(10**9)]),
    st.sampled_from([float("nan"), float("inf"), -1.5]),
    st.sampled_from([None, True, [], {}, [1, "a"], {"a": {"b": 1}}, b"bytes"]),
    st.text(max_size=20),
)


@st.composite
def damages(draw):
    """One way to spoil a checkpoint: its name, and a function of its state or its bytes."""
    kinds = ["option", "option", "option", "part", "progress", "weight", "bytes", "code"]
    kind = draw(st.sampled_from(kinds))
    pick, value = draw(st.integers(0, 10**6)), draw(VALUES)
    return kind, pick, value


def spoil(good: dict, content: bytes, damage, path: Path, marker: Path) -> None:
    kind, pick, value = damage
    value = value.format(marker=str(marker)) if value == PAYLOAD else value
    state = copy.deepcopy(good)
    if kind == "bytes":
        end = pick % len(content)
        spoiled = bytearray(content[:end] if pick % 3 else content)
        if pick % 3 == 0:
            spoiled[end] ^= 1 + pick % 255
        path.write_bytes(spoiled)
        return
    if kind == "option":
        groups = [state["cfg"][name] for name in ("model", "task", "criterion", "common")]
        group = groups[0 if pick % 2 else pick % 4] or {}
        options = vars(group) if isinstance(group, Namespace) else group
        names = sorted(options)
        options[names[pick % len(names)]] = value
        if pick % 7 == 0:
            options["adaptive_softmax_cutoff"] = value
    elif kind == "part":
        name = sorted(state)[pick % len(state)]
        if pick % 2:
            del state[name]
        else:
            state[name] = value
    elif kind == "progress":
        history = state["optimizer_history"][-1]
        extra_state = state["extra_state"]
        parts = [history, history["lr_scheduler_state"], extra_state, extra_state["train_iterator"]]
        part = parts[pick % 4]
        part[sorted(part)[pick // 4 % len(part)]] = value
    elif kind == "weight":
        name = sorted(state["model"])[pick % len(state["model"])]
        tensor = state["model"][name]
        others = [value, tensor[..., None], tensor.double() * float("nan"), torch.ones(3), None]
        state["model"][name] = others[pick % len(others)]
    else:
        state["extra_state"] = RunsOnLoad(marker)
    torch.save(state, path)


@contextmanager
def as_a_command(folder: Path):
    """What the commands change in this process is put back; a hang is a failure."""

    def hang(*_):
        raise pytest.fail.Exception(f"no end after {SECONDS} seconds")

    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr, logging.root.handlers[:]
    handler = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        sys.argv, sys.stdin, sys.stdout, sys.stderr, logging.root.handlers[:] = kept
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "out").unlink(missing_ok=True)


def outcome(command, folder: Path, checkpoint: Path) -> str:
    """How a command ended: "" or its one line. Any other end would be a traceback."""
    with as_a_command(folder):
        try:
            command(folder, checkpoint)
        except SystemExit as error:
            return str(error.code or "")
    return ""


@pytest.mark.parametrize("name", LOADERS)
def test_bad_checkpoints_are_harmless(name, folder):
    good, content = torch.load(folder / "good.pt"), (folder / "good.pt").read_bytes()
    checkpoint, marker = folder / "checkpoint_1_60.pt", folder / "it-ran"
    print(f"SHAPE_SEED={SEED}")
    tried = {"": 0, "refused": 0}
    checkpoint.write_bytes(content)
    assert outcome(LOADERS[name], folder, checkpoint) == "", "a good checkpoint is not refused"

    @seed(SEED)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # a case is short as it is
        suppress_health_check=list(HealthCheck),
    )
    @given(damages())
    def harmless(damage):
        spoil(good, content, damage, checkpoint, marker)
        try:
            line = outcome(LOADERS[name], folder, checkpoint)
        except Exception as error:
            error.add_note(f"{name} {damage!r}") if hasattr(error, "add_note") else None
            raise
        assert "\n" not in line.strip() and "Traceback" not in line
        assert not marker.exists()
        tried["refused" if line else ""] += 1

    harmless()
    print(f"{name}: {tried['refused']} refused, {tried['']} without effect")


def test_code_in_an_option_reaches_no_command(data, folder, tmp_path):
    """The real command, and every command in this process."""
    state = torch.load(folder / "good.pt")
    marker, bad = tmp_path / "it-ran", tmp_path / "checkpoint_1_60.pt"
    state["cfg"]["model"].adaptive_softmax_cutoff = PAYLOAD.format(marker=str(marker))
    torch.save(state, bad)
    for command in LOADERS.values():
        line = outcome(command, folder, bad)
        assert "adaptive_softmax_cutoff is code" in line and "nothing of it was run" in line
    result = run(
        "fairseq-generate", data, "--user-dir", USER_DIR, "--path", bad, "--cpu", check=False
    )
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"shape_fairseq: error: {bad} was not loaded")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("attention_dropout", value) for value in ("much", None, [], {"a": 1})),
        ("dropout", "much"),
        ("quant_noise_scalar", 7),  # it needs a GPU
        ("max_source_positions", True),
        ("max_target_positions", 1),
    ],
)
def test_a_model_that_cannot_translate_is_not_loaded(option, value, folder):
    """Options that fairseq looks at when it translates, not when it builds the model."""
    checkpoint = folder / "checkpoint_1_60.pt"
    state = torch.load(folder / "good.pt")
    setattr(state["cfg"]["model"], option, value)
    torch.save(state, checkpoint)
    for name in ("fairseq-generate", "from_pretrained", "token-scores"):
        line = outcome(LOADERS[name], folder, checkpoint)
        assert f"{checkpoint} was not loaded" in line and "\n" not in line.strip()


def test_a_checkpoint_without_criterion_is_not_validated(folder):
    checkpoint = folder / "checkpoint_1_60.pt"
    state = torch.load(folder / "good.pt")
    state["cfg"]["criterion"]["_name"] = None
    torch.save(state, checkpoint)
    line = outcome(LOADERS["fairseq-validate"], folder, checkpoint)
    assert "the criterion" in line and "has no name" in line and "\n" not in line.strip()


def test_average_on_a_full_disk_is_one_line(folder, tmp_path):
    shutil.copy(folder / "good.pt", tmp_path / "checkpoint_1_60.pt")
    limit = 'ulimit -f 100; trap \'\' XFSZ; exec "$0" -m shape_fairseq "$@"'
    words = ("average", tmp_path, "--number", "1", "--output", tmp_path / "out.pt")
    result = processes.run("bash", "-c", limit, sys.executable, *words)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and "free some space" in result.stderr
    assert not list(tmp_path.glob("out.pt*"))
