"""The weights of checkpoints, counted and averaged, and the history of an average."""

import dataclasses
import re
from pathlib import Path

import torch

from ..checkpoints import load
from ..compat import FAST_PATH_COPIES
from ..errors import UserError

COPY = re.compile(rf"encoder\.layers\.\d+\.({'|'.join(FAST_PATH_COPIES)})")

# What models share. fairseq saves copies of it when it trains on a GPU or in half precision.
SHARED = re.compile(r"embed_tokens\.weight|output_projection\.weight|distance_bias\.table")


@dataclasses.dataclass(frozen=True)
class History:
    """How an averaged checkpoint came about."""

    updates: int
    seconds: float
    parameters: int
    averaged_updates: list[int]


def read_history(path: Path) -> History:
    """The history of a checkpoint that `shape-fairseq average` wrote."""
    state = load(path)
    try:
        extra = state["extra_state"]
        return History(
            updates=state["optimizer_history"][-1]["num_updates"],
            # A tensor in the checkpoints of several ranks.
            seconds=float(extra["previous_training_time"]),
            parameters=extra["parameters"],
            averaged_updates=extra["averaged_updates"],
        )
    except (KeyError, IndexError, TypeError) as error:
        raise UserError(f"{path} is no average: make it with shape-fairseq average") from error


def shared_weights(weights: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each name the first name of the same weights: embeddings are shared."""
    names = [name for name in weights if SHARED.search(name)]
    first = {
        # The default is for numbers that equal nothing: NaN of a training that went wrong.
        name: next((other for other in names if torch.equal(weights[other], weights[name])), name)
        for name in names
    }
    return {name: first.get(name, name) for name in weights}


def count_parameters(weights: dict[str, torch.Tensor]) -> int:
    """How many numbers the model has learned; shared ones count once."""
    no_parameter = ("version", "_float_tensor")
    return sum(
        weights[name].numel()
        for name in set(shared_weights(weights).values())
        if not name.endswith(no_parameter) and not COPY.fullmatch(name)
    )


def shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    """What two checkpoints of one model have in common."""
    return {name: tensor.shape for name, tensor in weights.items()}


def average(paths: dict[int, Path]) -> dict:
    """The newest of the checkpoints with the mean of all their weights, in fp32."""
    total: dict[str, torch.Tensor] = {}
    for path in paths.values():
        state = load(path)
        weights = state["model"]
        if total and shapes(total) != shapes(weights):
            raise UserError(f"{path} holds another model than the checkpoints before it")
        shared = shared_weights(weights)
        for name, tensor in weights.items():
            if name in total and shared[name] == name:
                total[name] += tensor.float()
            elif name not in total:
                total[name] = (
                    tensor.float().clone() if shared[name] == name else total[shared[name]]
                )
    parameters = count_parameters(weights)
    for name in set(shared.values()):
        total[name] /= len(paths)
    state.pop("last_optimizer_state", None)
    state["model"] = total
    averaged = {"averaged_updates": list(paths), "parameters": parameters}
    state["extra_state"] = (state.get("extra_state") or {}) | averaged
    return state
