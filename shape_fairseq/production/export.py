"""From a checkpoint to production: a stock fairseq checkpoint, or a CTranslate2 model."""

import argparse
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel

from ..errors import UserError
from ..evaluation.checkpoints import COPY, load
from ..evaluation.results import versions
from ..files import atomic_outputs, refuse_existing, sha256
from ..models.transformer_rpe import TransformerRPEModel
from ..models.transformer_shape import TransformerShapeModel

KINDS = {TransformerModel: "ape", TransformerShapeModel: "shape", TransformerRPEModel: "rpe"}
POSITION_BUFFER = re.compile(r"(en|de)coder\.embed_positions\.(_float_tensor|weights)")


class Checkpoint:
    """A trained Transformer on disk: its weights, the options it was trained with, its kind."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise UserError(f"{path} is missing: give the checkpoint of a training")
        state = load(path)
        if not isinstance(state, dict) or not state.get("model"):
            raise UserError(f"{path} is no checkpoint of fairseq-train")
        self.path = path
        self.weights: dict[str, torch.Tensor] = state["model"]
        self.config: dict = state.get("cfg") or {}
        self.options = training_options(state)
        self.history: list[dict] = state.get("optimizer_history") or [{}]
        arch = getattr(self.options, "arch", None) or getattr(self.options, "_name", None)
        self.arch: str = arch or "an unnamed architecture"
        # A subclass of fairseq's Transformer computes something else: only these three are known.
        kind = KINDS.get(ARCH_MODEL_REGISTRY.get(self.arch))
        if kind is None:
            raise UserError(
                f"{path} holds {self.arch}: only transformer, transformer_shape and"
                " transformer_rpe can be exported"
            )
        self.kind: str = kind

    def signature(self) -> dict:
        """What was exported, by what."""
        updates = self.history[-1].get("num_updates")
        return {
            "checkpoint": sha256(self.path),
            "arch": self.arch,
            "updates": updates,
            "versions": versions(),
        }


def training_options(state: dict) -> Namespace:
    """The options of a training: fairseq keeps them in `args`, or with others in `cfg`."""
    options = state.get("args") or (state.get("cfg") or {}).get("model")
    if options is None:
        raise UserError("the checkpoint lacks the options of its training: train it again")
    return Namespace(**(vars(options) if isinstance(options, Namespace) else options))


def stock_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that every fairseq knows, without what each version makes for itself."""
    return {
        name: tensor
        for name, tensor in weights.items()
        if not COPY.fullmatch(name) and not POSITION_BUFFER.fullmatch(name)
    }


def stock_checkpoint(checkpoint: Checkpoint) -> dict:
    """A SHAPE checkpoint as fairseq's own `transformer`, without random shifts it is the same.

    It holds dictionaries, numbers, texts and tensors alone: torch's restricted unpickler, the
    default since 2.6, reads it without any list of what to allow.
    """
    if checkpoint.kind == "rpe":
        raise UserError(
            f"{checkpoint.path} is an RPE model: fairseq's own transformer has no relative"
            " positions; use --to ctranslate2, or fairseq with --user-dir"
        )
    arch = checkpoint.arch.replace("transformer_shape", "transformer", 1)
    model = vars(checkpoint.options) | {"arch": arch, "_name": arch, "user_dir": None}
    model.pop("max_shift", None)
    config = checkpoint.config or converted_config(checkpoint.options)
    common = dict(config.get("common") or {}) | {"user_dir": None}
    return {
        "args": None,
        "cfg": config | {"model": model, "common": common},
        "model": stock_weights(checkpoint.weights),
        "criterion": None,
        "optimizer_history": checkpoint.history,
        "task_state": {},
        "extra_state": {"exported": checkpoint.signature()},
        "last_optimizer_state": None,
    }


def converted_config(options: Namespace) -> dict:
    """The `cfg` of a checkpoint that has `args` only, as fairseq before 0.11 wrote it."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    config = convert_namespace_to_omegaconf(options)
    config.model = None
    return OmegaConf.to_container(config, resolve=True, enum_to_str=True)


def to_fairseq(checkpoint: Checkpoint, output: Path, args: Namespace) -> None:
    """Write a checkpoint that any fairseq loads without --user-dir."""
    state = stock_checkpoint(checkpoint)
    with atomic_outputs(output) as (file,):
        torch.save(state, file)


def to_ctranslate2(checkpoint: Checkpoint, output: Path, args: Namespace) -> None:
    """Write a folder with all that `shape-fairseq translate` needs."""
    from . import ctranslate2_model

    ctranslate2_model.export(checkpoint, output, args)


TARGETS: dict[str, Callable[[Checkpoint, Path, Namespace], None]] = {
    "fairseq": to_fairseq,
    "ctranslate2": to_ctranslate2,
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shape-fairseq export",
        description="Export a checkpoint, averaged or not, for production.",
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="fairseq: a SHAPE checkpoint that any fairseq loads without --user-dir;"
        " ctranslate2: APE, SHAPE and RPE as a folder for shape-fairseq translate",
    )
    parser.add_argument("output", type=Path, help="OUT.pt, or the folder of the CTranslate2 model")
    group = parser.add_argument_group("for ctranslate2")
    group.add_argument("--quantization", metavar="TYPE", help="int8, float16, ... (default: none)")
    group.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="the folder that data_prep made, or a data-bin (default: that of the training)",
    )
    group.add_argument(
        "--codes",
        type=Path,
        help="BPE codes (default: bpe/codes in the folder of data_prep)",
    )
    group.add_argument("--source-lang", help="default: as in the training")
    group.add_argument("--target-lang", help="default: as in the training")
    search = parser.add_argument_group("how ctranslate2 translates unless told otherwise")
    search.add_argument("--beam", type=int, default=4, help="default: %(default)s")
    search.add_argument("--lenpen", type=float, default=0.6, help="default: %(default)s")
    search.add_argument(
        "--max-len-a",
        type=float,
        default=2,
        help="a translation is at most a * source + b subwords long (default: %(default)s)",
    )
    search.add_argument("--max-len-b", type=int, default=50, help="default: %(default)s")
    return parser


def main(arguments: list[str]) -> None:
    """Export a checkpoint for production."""
    args = make_parser().parse_args(arguments)
    if args.to not in TARGETS:
        raise UserError(f"unknown target '{args.to}': choose {' or '.join(TARGETS)}")
    refuse_existing(args.output)
    TARGETS[args.to](Checkpoint(args.checkpoint), args.output, args)
