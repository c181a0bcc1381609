"""A trained Transformer on disk: its weights, the options of its training, which model it is."""

from argparse import Namespace
from pathlib import Path

import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from .. import models  # noqa: F401 - registers the models
from ..checkpoints import load
from ..compat import refusals
from ..errors import UserError
from ..evaluation.results import versions
from ..files import sha256
from ..model_names import MODELS, Model

# A subclass of fairseq's Transformer computes something else: only these are known.
MODEL_OF_CLASS = {ARCH_MODEL_REGISTRY[model.architecture]: model for model in MODELS.values()}


class Checkpoint:
    """A checkpoint of fairseq-train, averaged or not."""

    def __init__(self, path: Path):
        state = load(path)
        with refusals(str(path)):
            self._read(path, state)

    def _read(self, path: Path, state: dict) -> None:
        self.path = path
        self.weights: dict[str, torch.Tensor] = state["model"]
        self.config: dict = state.get("cfg") or {}
        self.options = training_options(state)
        self.history: list[dict] = state.get("optimizer_history") or [{}]
        arch = getattr(self.options, "arch", None) or getattr(self.options, "_name", None)
        self.arch: str = arch or "an unnamed architecture"
        self.model_class = ARCH_MODEL_REGISTRY.get(self.arch)
        if self.model_class not in MODEL_OF_CLASS:
            *names, last = (model.architecture for model in MODELS.values())
            raise UserError(
                f"{path} holds {self.arch}: only {', '.join(names)} and {last} can be exported"
            )
        self.model: Model = MODEL_OF_CLASS[self.model_class]

    def signature(self) -> dict:
        """What was exported, by what."""
        return {
            "checkpoint": sha256(self.path),
            "arch": self.arch,
            "updates": self.history[-1].get("num_updates"),
            "versions": versions(),
        }


def training_options(state: dict) -> Namespace:
    """The options of a training: fairseq keeps them in `args`, or with others in `cfg`."""
    options = state.get("args") or (state.get("cfg") or {}).get("model")
    if options is None:
        raise UserError("the checkpoint lacks the options of its training: train it again")
    return Namespace(**(vars(options) if isinstance(options, Namespace) else options))
