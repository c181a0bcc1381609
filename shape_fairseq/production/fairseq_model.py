"""APE, SHAPE, CAPE and randomized positions as a checkpoint of fairseq's own `transformer`."""

import re
from argparse import Namespace
from pathlib import Path
from typing import cast

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from .. import checkpoints
from ..compat import refusals
from ..errors import UserError
from ..evaluation.weights import COPY
from ..model_names import MODELS
from ..models.relative_positions import RelativePositionsModel
from .trained import Checkpoint

POSITION_BUFFER = re.compile(r"(en|de)coder\.embed_positions\.(_float_tensor|weights)")


def stock_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that every fairseq knows, without what each version makes for itself."""
    return {
        name: tensor
        for name, tensor in weights.items()
        if not COPY.fullmatch(name) and not POSITION_BUFFER.fullmatch(name)
    }


def stock_checkpoint(checkpoint: Checkpoint) -> dict:
    """A checkpoint of fairseq's own `transformer`, which is what these models are outside training.

    It holds dictionaries, numbers, texts and tensors alone: torch's restricted unpickler, the
    default since 2.6, reads it without any list of what to allow.
    """
    if issubclass(checkpoint.model_class, RelativePositionsModel):
        raise UserError(
            f"{checkpoint.path} is a model with {checkpoint.model.title}: fairseq's own transformer"
            " has no relative positions; use --to ctranslate2, or fairseq with --user-dir"
        )
    stock = MODELS["ape"].architecture
    arch = checkpoint.arch.replace(checkpoint.model.architecture, stock, 1)
    model = vars(checkpoint.options) | {"arch": arch, "_name": arch, "user_dir": None}
    for option in checkpoint.model.options:
        model.pop(option.lstrip("-").replace("-", "_"), None)
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
    config = convert_namespace_to_omegaconf(options)
    config.model = None
    return cast(dict, OmegaConf.to_container(config, resolve=True, enum_to_str=True))


def export(checkpoint: Checkpoint, output: Path, args: Namespace) -> None:
    """Write a checkpoint that any fairseq loads without --user-dir."""
    with refusals(str(checkpoint.path)):
        state = stock_checkpoint(checkpoint)
    checkpoints.save(state, output)
