"""Nothing of a checkpoint runs, and each kind of bad file gets its own advice."""

import ast
import logging
import os
import random
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks import setup_task

from shape_fairseq import checkpoints, compat
from shape_fairseq.errors import UserError
from tests import processes

EVALUATORS = ("eval", "eval_str_list", "eval_str_dict", "eval_bool")


def evaluated_names() -> set[str]:
    """The last name in what each call of eval() and its like gets, in all of fairseq's source."""
    names = set()
    package = Path(fairseq.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(package / "examples") or "eval" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            name = getattr(call, "func", None)
            called = getattr(name, "id", None) or getattr(name, "attr", None)
            # model.eval() is something else
            is_builtin = called == "eval" and isinstance(name, ast.Name)
            if (is_builtin or called in EVALUATORS[1:]) and call.args:
                value = call.args[0]
                if isinstance(value, ast.Subscript):
                    value = value.slice
                names.add(
                    getattr(value, "attr", None)
                    or getattr(value, "id", None)
                    or getattr(value, "value", None)
                )
    return names


def test_all_options_that_fairseq_evaluates_are_known():
    # x and uf are parameters of the helpers themselves; a call is of a line of a data file.
    others = {name for name in evaluated_names() if not isinstance(name, str)} | {"x", "uf"}
    assert evaluated_names() - others <= checkpoints.EVALUATED_OPTIONS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(0.9, 0.98)", (0.9, 0.98)),
        ("[(512, 3)] * 2 + [(1, 2)]", [(512, 3), (512, 3), (1, 2)]),
        ("{'a': [1, None]}", {"a": [1, None]}),
        (" True", True),
        ("-1e-3", -0.001),
        ("1e3 / 2", 500.0),
    ],
)
def test_literals_are_what_eval_made_of_them(text, value):
    assert checkpoints.literal(text) == eval(text.strip()) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('x')",
        "[i for i in (1, 2)]",
        "(lambda: 1)()",
        "f'{1}'",
        "9 ** 9 ** 9",
        "[0] * 10 ** 9",
        "[0] * 1000000000",
        "'a' * 1000000000",
        "(" * 9000,
        "-" * 9000 + "1",
        "[1]" + "+[1]" * 30000,
        "1 / 0",
        "words",
        "",
    ],
)
def test_all_else_is_refused_and_not_run(text):
    with pytest.raises(ValueError, match="nothing of it was run") as error:
        checkpoints.literal(text)
    assert len(str(error.value)) < 200 and "\n" not in str(error.value)


class RunsOnLoad:
    """What a malicious checkpoint holds: a call that pickle makes while loading."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


HISTORY = {"num_updates": 3, "optimizer_name": "FairseqAdam", "lr_scheduler_state": {}}


def whole_state(**more) -> dict:
    model = {"w": torch.ones(500)}
    return {"model": model, "extra_state": {}, "optimizer_history": [HISTORY], **more}


def bytes_of(state, folder) -> bytes:
    path = folder / "whole.pt"
    torch.save(state, path)
    return path.read_bytes()


def test_each_bad_file_gets_the_advice_that_fits(tmp_path):
    path = tmp_path / "checkpoint.pt"
    whole = bytes_of(whole_state(), tmp_path)
    itself: list = []
    itself.append(itself)
    cases = {
        "is empty": b"",
        "is cut off after": whole[:-40],
        "or it is damaged": b"not a checkpoint",
        "has no weights of a model": bytes_of([1, 2], tmp_path),
        "'model' is of type str": bytes_of({"model": "w"}, tmp_path),
        "'w' is no weight": bytes_of({"model": {"w": 1}}, tmp_path),
        "'w' is larger than what is stored": bytes_of(
            {"model": {"w": torch.ones(1).expand(10**9)}}, tmp_path
        ),
        "it wants to run posix.mkdir": bytes_of(RunsOnLoad(tmp_path / "x"), tmp_path),
        "it wants to run logging.Formatter": bytes_of(
            whole_state(thing=logging.Formatter()), tmp_path
        ),
        "adam_betas is code": bytes_of(
            whole_state(cfg={"optimizer": {"adam_betas": "print(1)"}}), tmp_path
        ),
        "refers to what is outside": bytes_of(
            whole_state(args=Namespace(criterion="${oc.env:HOME}")), tmp_path
        ),
        "more than 100,000 settings": bytes_of(whole_state(cfg={"a": itself}), tmp_path),
        "max_source_positions is 1,000,000,000": bytes_of(
            whole_state(args=Namespace(max_source_positions=10**9)), tmp_path
        ),
        "max_target_positions is 1": bytes_of(
            whole_state(args=Namespace(max_target_positions=1)), tmp_path
        ),
        "attention_dropout is nan": bytes_of(
            whole_state(args=Namespace(attention_dropout=float("nan"))), tmp_path
        ),
        "decoder_layerdrop is 7": bytes_of(
            whole_state(args=Namespace(decoder_layerdrop=7)), tmp_path
        ),
        "previous_training_time is 'abc'": bytes_of(
            whole_state(extra_state={"previous_training_time": "abc"}), tmp_path
        ),
        "epoch is -5": bytes_of(
            whole_state(extra_state={"train_iterator": {"epoch": -5}}), tmp_path
        ),
        "num_updates is -5": bytes_of(
            whole_state(optimizer_history=[HISTORY | {"num_updates": -5}]), tmp_path
        ),
        "lr is None": bytes_of(
            whole_state(optimizer_history=[{"lr_scheduler_state": {"lr": None}}]), tmp_path
        ),
        "no FASTA": bytes_of(whole_state(args=Namespace(dataset_impl="fasta")), tmp_path),
    }
    for message, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{path} ") as error:
            checkpoints.load(path)
        assert message in str(error.value) and "\n" not in str(error.value)
        assert not checkpoints.is_whole(path)
        refused = "was not loaded" in str(error.value)
        assert not (refused and "delete" in str(error.value)), "no advice for what is refused"
    for message, unreadable in (("is a folder", tmp_path), ("is missing", tmp_path / "none")):
        with pytest.raises(UserError, match=message):
            checkpoints.load(unreadable)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is no file"):
        checkpoints.load(tmp_path / "pipe")
    assert not (tmp_path / "x").exists()
    path.write_bytes(whole)
    assert checkpoints.load(path)["model"]["w"].equal(torch.ones(500))


def test_a_changed_byte_is_noticed(tmp_path):
    """In a weight, and in a number of the training, which torch.load would read as another."""
    path = tmp_path / "checkpoint.pt"
    whole = bytes_of(whole_state(step=123456789), tmp_path)
    for bits in (torch.ones(1).numpy().tobytes() * 8, (123456789).to_bytes(4, "little")):
        changed = bytearray(whole)
        changed[whole.index(bits)] ^= 1
        path.write_bytes(changed)
        torch.load(path)
        assert not checkpoints.is_whole(path)
        with pytest.raises(UserError, match="is damaged .*: copy it again"):
            checkpoints.load(path)


def test_several_ranks_write_their_time_as_a_tensor(tmp_path):
    path = tmp_path / "checkpoint.pt"
    for time, whole in ((torch.tensor(2.5), True), (torch.tensor(float("nan")), False)):
        path.write_bytes(
            bytes_of(whole_state(extra_state={"previous_training_time": time}), tmp_path)
        )
        assert checkpoints.is_whole(path) == whole


def test_the_newest_whole_checkpoint_is_by_updates(tmp_path):
    for name, updates, optimizer in (
        ("checkpoint1.pt", 8, {}),
        ("checkpoint_2_12.pt", 12, {}),
        ("checkpoint_best.pt", 11, {}),
        ("checkpoint_averaged.pt", 13, None),  # cannot be gone on from
    ):
        history = [{"num_updates": updates}]
        state = whole_state(optimizer_history=history, last_optimizer_state=optimizer)
        torch.save(state, tmp_path / name)
    newest = tmp_path / "checkpoint_2_12.pt"
    last = tmp_path / "checkpoint_last.pt"
    assert checkpoints.newest_whole(tmp_path, but=last) == newest
    newest.write_bytes(newest.read_bytes()[:-1])
    assert checkpoints.newest_whole(tmp_path, but=last) == tmp_path / "checkpoint_best.pt"


def test_a_full_disk_leaves_nothing_and_says_so(tmp_path):
    """As in test_files: the kernel refuses to let a file grow."""
    program = (
        "import resource, sys, torch\n"
        "from shape_fairseq import checkpoints, errors\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "state = {'model': {'w': torch.ones(100_000)}}\n"
        "errors.run(lambda: checkpoints.save(state, sys.argv[1]))\n"
    )
    result = processes.run(sys.executable, "-c", program, tmp_path / "out.pt")
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'out.pt'} cannot be written")
    assert len(result.stderr.splitlines()) == 1 and "free some space" in result.stderr
    assert list(tmp_path.iterdir()) == []


# What a checkpoint's options reach: every architecture of fairseq, every option that holds text.


def options_of(arch: str) -> dict:
    """All options of an architecture, with the values that fairseq gives them."""
    if arch in MODEL_DATACLASS_REGISTRY:
        return vars(MODEL_DATACLASS_REGISTRY[arch]()) | {"_name": arch}
    parser = ArgumentParser(argument_default=None, conflict_handler="resolve")
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    args = Namespace(**{k: v for k, v in vars(parser.parse_args([])).items() if v is not None})
    ARCH_CONFIG_REGISTRY[arch](args)
    return {action.dest: None for action in parser._actions} | vars(args) | {"arch": arch}


def one_architecture_of_each_model() -> list[str]:
    smallest = sorted(ARCH_MODEL_REGISTRY, key=lambda arch: ("tiny" not in arch, len(arch), arch))
    models = {ARCH_MODEL_REGISTRY[arch]: arch for arch in reversed(smallest)}
    return sorted(models.values())


def build_on_nothing(options: dict, task) -> None:
    """Build a model without memory for its weights; that it does not fit is no matter here."""
    from fairseq.models import build_model

    with torch.device("meta"), checkpoints.no_larger_than(__file__):
        build_model(Namespace(**options), task)


@pytest.fixture
def task(data_folder):
    for language in ("en", "de"):
        (data_folder / f"dict.{language}.txt").write_bytes((data_folder / "dict.txt").read_bytes())
    return setup_task(
        Namespace(task="translation", data=str(data_folder), source_lang="en", target_lang="de")
    )


@pytest.mark.parametrize("arch", one_architecture_of_each_model())
def test_no_option_of_any_architecture_is_run(arch, task, tmp_path):
    marker = tmp_path / "it-ran"
    payload = f"__import__('os').mkdir({str(marker)!r}) or [10]"
    try:
        options = options_of(arch)
    except Exception as error:  # e.g. models whose packages are not installed
        pytest.skip(f"fairseq cannot make {arch} here: {error}")
    texts = [name for name, value in options.items() if value is None or isinstance(value, str)]
    texts += [name for name in checkpoints.EVALUATED_OPTIONS if name in options]
    texts = sorted(set(texts) - {"arch", "_name"})
    evaluated = [name for name in texts if name in checkpoints.EVALUATED_OPTIONS]
    # One at a time where fairseq evaluates them, all others at once.
    for names in ([name] for name in evaluated):
        _try(options | dict.fromkeys(names, payload), task)
    _try(options | dict.fromkeys(set(texts) - set(evaluated), payload), task)
    # And through a checkpoint, which is refused before anything is built.
    for name in evaluated:
        path = tmp_path / "checkpoint.pt"
        torch.save(whole_state(args=Namespace(**(options | {name: payload}))), path)
        with pytest.raises(ValueError, match=f"was not loaded: its option {name} is code"):
            checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert not marker.exists()


def _try(options: dict, task) -> None:
    with suppress(Exception, SystemExit):  # wrong options may fail in any way but one
        build_on_nothing(options, task)


def test_this_fuzz_would_find_code_that_runs(task, tmp_path, monkeypatch):
    for owner, name, _ in compat.APPLIED["literals instead of eval"]:
        if name == "eval":
            monkeypatch.delattr(owner, "eval", raising=False)
    marker = tmp_path / "it-ran"
    payload = f"__import__('os').mkdir({str(marker)!r}) or [10]"
    _try(options_of("fconv") | {"encoder_layers": payload}, task)
    assert marker.is_dir()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("encoder_layers", 10**9, "larger model than it holds"),
        ("encoder_embed_dim", 10**6, "embed"),
        ("encoder_ffn_embed_dim", 10**6, "larger model than it holds"),
        ("decoder_attention_heads", 10**9, "embed_dim"),
        ("max_target_positions", 10**12, "more than any model has"),
    ],
)
def test_a_model_larger_than_its_checkpoint_is_not_built(
    option, value, message, save_checkpoint, task
):
    path = save_checkpoint("transformer_shape_tiny")
    state = torch.load(path)
    setattr(state["cfg"]["model"], option, value)
    torch.save(state | {"optimizer_history": [HISTORY]}, path)
    with pytest.raises(ValueError, match=f"{path} was not loaded.*{message}") as error:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert "\n" not in str(error.value)


def test_a_user_dir_of_a_checkpoint_is_not_imported(save_checkpoint, task, tmp_path):
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"import os; os.mkdir({str(tmp_path / 'it-ran')!r})")
    path = save_checkpoint("transformer_shape_tiny")
    state = torch.load(path)
    state["cfg"]["common"]["user_dir"] = state["cfg"]["model"].user_dir = str(folder)
    torch.save(state | {"optimizer_history": [HISTORY]}, path)
    checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("seed", range(3))
def test_truncated_anywhere_it_is_not_whole(seed, tmp_path):
    content = bytes_of(whole_state(last_optimizer_state={}), tmp_path)
    path = tmp_path / "checkpoint.pt"
    for length in random.Random(seed).sample(range(len(content)), 15):
        path.write_bytes(content[:length])
        assert not checkpoints.is_whole(path)
        with pytest.raises(UserError):
            checkpoints.load(path)


def test_cut_off_checkpoints_are_refused_by_fairseqs_loader(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(bytes_of(whole_state(), tmp_path)[:100])
    with pytest.raises(ValueError, match=f"{path} is cut off after 100 bytes"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    with pytest.raises(ValueError, match="is missing"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "none.pt"))
