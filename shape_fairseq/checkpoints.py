"""Checkpoints are somebody else's files: reading them runs nothing, writing them leaves no half."""

import argparse
import ast
import os
import pickle
import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from .errors import NO_SPACE, OptionError, UserError, one_line
from .files import atomic_outputs

# What fairseq puts into a checkpoint beside tensors and plain data.
ALLOWED_CLASSES = [
    argparse.Namespace,
    getattr(numpy, "_core", numpy.core).multiarray.scalar,
    numpy.dtype,
    *{type(numpy.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")},
]

# The options that fairseq hands to eval() (a test looks for all of them in its source).
# fmt: off
EVALUATED_OPTIONS = frozenset((
    "adafactor_eps", "adam_betas", "adamax_betas", "adaptive_input_cutoff",
    "adaptive_softmax_cutoff", "character_filters", "conv_aggregator_layers",
    "conv_feature_layers", "decoder_attention", "decoder_layers", "decoder_xformers_att_config",
    "downsample", "encoder_attention", "encoder_layers", "encoder_xformers_att_config",
    "feature_encoder_spec", "gated_attention", "lamb_betas", "left_pad_source", "left_pad_target",
    "pipeline_balance",
    "pipeline_decoder_balance", "pipeline_decoder_devices", "pipeline_devices",
    "pipeline_encoder_balance", "pipeline_encoder_devices", "pretrained", "project_input",
    "self_attention", "wer_args", "xformers_att_config",
))
# fmt: on
# Options that size a table which is no weight, so that no weight tells how large it may be.
POSITION_OPTIONS = ("max_source_positions", "max_target_positions")
TABLE_OPTIONS = (
    *POSITION_OPTIONS,
    *("max_positions", "tokens_per_sample"),
    *("max_shift", "max_global_shift", "max_local_shift", "max_global_scale", "position_range"),
)
LARGEST_TABLE = 1_000_000
FEWEST_POSITIONS = 2  # a word and the end of the sentence
MOST_OPTIONS = 100_000
LONGEST_LITERAL = 10_000  # characters of its text, and elements of its value
RESOLVER = re.compile(r"\$\{[^}]*:")  # OmegaConf's ${oc.env:HOME}: it reads what is outside


class Refused(ValueError):
    """Why a checkpoint is not loaded; the message goes on after the file's name."""


def allow_fairseq_classes() -> None:
    """Let torch's restricted unpickler read what fairseq writes, and nothing else."""
    torch.serialization.add_safe_globals(ALLOWED_CLASSES)


def literal(text: str, *_scope: object) -> Any:
    """What eval() makes of literals and their sums and products, such as "[(512, 3)] * 20".

    It stands in fairseq's modules where eval() stood; anything else is refused and not run.
    """
    if not isinstance(text, str):
        raise TypeError(f"eval() arg 1 must be a string, not {type(text).__name__}")
    try:
        if len(text) > LONGEST_LITERAL:
            raise ValueError("too long")
        return _literal(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, ArithmeticError):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise OptionError(
            f"{shown!r} is no number, list or dictionary; nothing of it was run"
        ) from None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_literal(element) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if not isinstance(node, ast.BinOp):
        return ast.literal_eval(node)
    left, right = _literal(node.left), _literal(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Div):
        return left / right
    if isinstance(node.op, ast.Mult):
        for value, times in ((left, right), (right, left)):
            if hasattr(value, "__len__") and len(value) * times > LONGEST_LITERAL:
                raise ValueError("too long")
        return left * right
    raise ValueError("no such operation in a literal")


def load(path: Path) -> dict:
    """A checkpoint as fairseq-train wrote it; what is no such file is refused in one line."""
    try:
        return _load(Path(path))
    except Refused as error:
        raise UserError(f"{path} {error}") from error


def check(path: Path) -> None:
    """Refuse, with a Refused error, a file that `load` would not load."""
    _load(Path(path), mmap=True)


def save(state: dict, path: Path) -> None:
    """Write a checkpoint that appears under its name only when it is complete."""
    try:
        with atomic_outputs(path) as (file,):
            torch.save(state, file)
    except (RuntimeError, OSError) as error:
        # torch tells of a full disk with a RuntimeError of its own.
        if isinstance(error, OSError) and error.errno not in NO_SPACE:
            raise
        raise UserError(
            f"{path} cannot be written ({one_line(error, 80)}):"
            " see whether the disk is full, free some space and run again"
        ) from error


def is_whole(path: Path) -> bool:
    """Whether all of a checkpoint is there, every byte as it was written."""
    try:
        check(path)
        return True
    except (Refused, OSError):
        return False


def updates(path: Path) -> int | None:
    """How many updates the training had made that a checkpoint continues; None if it cannot."""
    try:
        state = _load(Path(path), mmap=True)
        if state.get("last_optimizer_state") is None:  # averaged, or without its optimizer
            return None
        return int(state["optimizer_history"][-1]["num_updates"])
    except (Refused, OSError, LookupError, TypeError, ValueError):
        return None


def newest_whole(folder: Path, but: Path) -> Path | None:
    """The checkpoint with the most updates of those in `folder` that are whole."""
    made = {path: updates(path) for path in Path(folder).glob("checkpoint*.pt") if path != but}
    candidates = sorted((number, path) for path, number in made.items() if number is not None)
    return next((path for _, path in reversed(candidates) if is_whole(path)), None)


def _load(path: Path, mmap: bool = False) -> dict:
    _check_file(path)
    try:
        allow_fairseq_classes()
        mmap = mmap and zipfile.is_zipfile(path)  # torch maps no other files
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged file
        raise Refused(_refusal(error)) from error
    _check_contents(state)
    return state


def _check_file(path: Path) -> None:
    if not path.exists():
        raise Refused("is missing: give the checkpoint of a training")
    if path.is_dir():
        raise Refused("is a folder: give a checkpoint in it, such as checkpoint_last.pt")
    if not path.is_file():
        raise Refused("is no file: give the checkpoint of a training")
    size = path.stat().st_size
    if size == 0:
        raise Refused(
            "is empty, as a full disk or a crash leaves it: delete it and give another checkpoint"
        )
    with open(path, "rb") as file:
        packed = file.read(4) == b"PK\x03\x04"
    if not packed:
        return  # an old checkpoint, or none at all: torch will tell
    if not zipfile.is_zipfile(path):
        raise Refused(
            f"is cut off after {size:,} bytes, as a full disk or a crash leaves it: copy it again"
            " from where it came from, or delete it and give another checkpoint"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > size:
                raise Refused(
                    "is no checkpoint: it would unpack to more than its size; it was not loaded"
                )
            changed = archive.testzip()  # torch.load does not look whether a byte was changed
    except Refused:
        raise
    except Exception as error:  # zipfile, too, raises many kinds for a damaged file
        raise Refused(f"is damaged ({one_line(error, 120)}): copy it again") from error
    if changed:
        raise Refused(f"is damaged (in {changed[:60]!r}): copy it again")


def _refusal(error: Exception) -> str:
    """Why torch did not load a file: a page of its own words in one line."""
    culprit = re.search(r"GLOBAL ([\w.]+)|class ([\w.]+\.\w+)", str(error))
    if isinstance(error, pickle.UnpicklingError) and culprit:
        return (
            "was not loaded: it holds more than weights and settings (it wants to run"
            f" {culprit[1] or culprit[2]}); nothing of it was run. Ask its author for one that"
            " torch.load(..., weights_only=True) reads"
        )
    return (
        "is no checkpoint of fairseq-train, or it is damaged: copy it again from where it came"
        " from, or give another one"
    )


def _check_contents(state: Any) -> None:
    """Refuse what fairseq-train never writes: it would fail, hang or run somewhere later."""
    expected = {
        "model": (dict,),
        "args": (Namespace, type(None)),
        "cfg": (dict, type(None)),
        "extra_state": (dict, type(None)),
        "optimizer_history": (list, type(None)),
    }
    if not isinstance(state, dict) or not state.get("model"):
        raise Refused("is no checkpoint of fairseq-train: it has no weights of a model")
    for name, kinds in expected.items():
        if not isinstance(state.get(name), kinds) and name in state:
            kind = type(state[name]).__name__
            raise Refused(f"is no checkpoint of fairseq-train: its {name!r} is of type {kind}")
    for name, tensor in state["model"].items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise Refused(f"is no checkpoint of fairseq-train: {name!r} is no weight")
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise Refused(f"is no checkpoint of fairseq-train: {name!r} is no plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise Refused(f"is damaged: {name!r} is larger than what is stored of it")
        if name.endswith("_float_tensor"):
            continue  # a buffer in which fairseq 0.12.2 stores uninitialized memory
        if tensor.is_floating_point() and tensor.isnan().any():
            raise Refused(
                f"is of no use: its weights {name} are no numbers (NaN), as a training that"
                " diverged leaves them; give an earlier checkpoint"
            )
    _check_progress(state)
    for option, value in settings(state):
        _check_option(option, value)


def _check_progress(state: dict) -> None:
    """Refuse numbers of a training that no training reaches: one that goes on would count on."""
    extra_state = state.get("extra_state") or {}
    iterator = extra_state.get("train_iterator")
    numbers: list[tuple[str, Any, int]] = [
        ("previous_training_time", extra_state.get("previous_training_time", 0), 0)
    ]
    if isinstance(iterator, dict):
        numbers.append(("epoch", iterator.get("epoch", 1), 1))
    for history in state.get("optimizer_history") or []:
        if not isinstance(history, dict):
            raise Refused("is no checkpoint of fairseq-train: its history is of another kind")
        numbers.append(("num_updates", history.get("num_updates", 0), 0))
        if isinstance(scheduler := history.get("lr_scheduler_state"), dict):
            numbers.append(("lr", scheduler.get("lr", 0), 0))
    for name, number, least in numbers:
        if isinstance(number, torch.Tensor) and number.numel() == 1:
            number = number.item()  # several ranks write their time as a tensor
        if not isinstance(number, (int, float, numpy.number)) or not number >= least:
            shown = repr(number)[:60]
            raise Refused(f"is no checkpoint of fairseq-train: its {name} is {shown}")


def settings(state: Mapping) -> Iterator[tuple[str, Any]]:
    """All options that a checkpoint holds, however deep, each with its name."""
    remaining = [("args", state.get("args")), ("cfg", state.get("cfg"))]
    for _ in range(MOST_OPTIONS):  # a list may hold itself
        if not remaining:
            return
        name, value = remaining.pop()
        if isinstance(value, Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            remaining += [(str(key), item) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            remaining += [(name, item) for item in value]
        else:
            yield name, value
    raise Refused(f"was not loaded: it holds more than {MOST_OPTIONS:,} settings")


def _check_option(option: str, value: Any) -> None:
    if isinstance(value, str):
        if option in EVALUATED_OPTIONS:
            try:
                literal(value)
            except ValueError as error:
                reason = str(error).removeprefix("shape_fairseq: error: ")
                raise Refused(f"was not loaded: its option {option} is code: {reason}") from None
        if RESOLVER.search(value):
            raise Refused(
                f"was not loaded: its option {option} refers to what is outside of the"
                " checkpoint; nothing of it was run"
            )
        if option == "dataset_impl" and value == "fasta":  # its reader starts a shell
            raise Refused("was not loaded: translation models read no FASTA files")
    elif isinstance(value, (int, float)):
        if option in TABLE_OPTIONS and value > LARGEST_TABLE:
            raise Refused(
                f"was not loaded: its option {option} is {value:,}, more than any model has"
            )
        if option.endswith(("dropout", "layerdrop")) and not 0 <= value <= 1:
            raise Refused(f"was not loaded: its option {option} is {value}, no share of anything")
        if option in POSITION_OPTIONS and value < FEWEST_POSITIONS:
            raise Refused(f"was not loaded: its option {option} is {value}: no sentence fits in")


@contextmanager
def no_larger_than(*paths: str | os.PathLike) -> Iterator[None]:
    """Within it, refuse to build a model that cannot be the one stored in these files.

    A checkpoint's settings may ask for a billion layers, and its few bytes cannot hold their
    weights: without this the machine runs out of memory before anybody compares the two.
    """
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    weights, tensors = 4 * size + 10_000_000, size // 50 + 10_000

    def count(module, name, parameter):
        nonlocal weights, tensors
        if parameter is not None:
            weights -= parameter.numel()
            tensors -= 1
        if size and min(weights, tensors) < 0:
            raise Refused("was not loaded: its settings ask for a larger model than it holds")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()
