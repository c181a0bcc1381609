"""The models by name: the architecture that each is in fairseq, and the options that make it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import UserError


@dataclass(frozen=True)
class Model:
    """A position representation that the recipes can train."""

    name: str
    title: str
    architecture: str
    options: Mapping[str, int | float] = field(default_factory=dict)  # of fairseq-train: defaults


CAPE_MAXIMA = {"--max-global-shift": 5.0, "--max-local-shift": 0.5, "--max-global-scale": 1.03}
SHIFTS = {"--max-shift": 500, "--shift-warmup-updates": 0}
T5_BUCKETS = {"--bias-buckets": 32, "--bias-max-distance": 128}

# One line for each model. An option such as --max-shift is the variable MAX_SHIFT of the recipes.
MODELS = {
    model.name: model
    for model in (
        Model("ape", "APE", "transformer"),
        Model("shape", "SHAPE", "transformer_shape", SHIFTS),
        Model("cape", "CAPE", "transformer_cape", CAPE_MAXIMA),
        Model("randomized", "randomized", "transformer_randomized", {"--position-range": 2048}),
        Model("rpe", "RPE", "transformer_rpe", {"--max-relative-distance": 16}),
        Model("rope", "RoPE", "transformer_rope", {"--rotary-base": 10000.0}),
        Model("alibi", "ALiBi", "transformer_alibi"),
        Model("t5_bias", "T5 bias", "transformer_t5_bias", T5_BUCKETS),
    )
}


def model_named(name: str) -> Model:
    """The model of this name."""
    if name not in MODELS:
        *names, last = MODELS
        raise UserError(f"unknown model '{name}': choose {', '.join(names)} or {last}")
    return MODELS[name]


def key_of(option: str) -> str:
    """--max-shift is max_shift in an experiment file and in fairseq's namespaces."""
    return option.strip("-").replace("-", "_")


def variable_of(option: str) -> str:
    """--max-shift is MAX_SHIFT in the environment and in recipe.txt."""
    return key_of(option).upper()
