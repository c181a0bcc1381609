"""Average the weights of a training's last checkpoints, as the paper does with ten."""

import argparse
import re
from pathlib import Path

import torch

from .. import checkpoints
from ..checkpoints import load
from ..compat import FAST_PATH_COPIES
from ..errors import UserError

CHECKPOINT = re.compile(r"checkpoint_\d+_(\d+)\.pt")
COPY = re.compile(rf"encoder\.layers\.\d+\.({'|'.join(FAST_PATH_COPIES)})")


def last_checkpoints(folder: Path, number: int) -> dict[int, Path]:
    """The newest `number` checkpoints of a training by their updates, oldest first."""
    found = {
        int(match[1]): path
        for path in folder.glob("checkpoint_*.pt")
        if (match := CHECKPOINT.fullmatch(path.name))
    }
    if len(found) < number:
        raise UserError(
            f"{folder} has {len(found)} checkpoints and {number} are to be averaged:"
            f" train longer, or set AVERAGE={max(len(found), 1)}"
        )
    return {updates: found[updates] for updates in sorted(found)[-number:]}


def shared_weights(weights: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each name the first name of the same weights: embeddings are shared."""
    first: dict[tuple, str] = {}
    return {
        name: first.setdefault((tensor.data_ptr(), tensor.shape), name) if tensor.numel() else name
        for name, tensor in weights.items()
    }


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


def main(arguments: list[str]) -> None:
    """Average the last checkpoints of a training."""
    parser = argparse.ArgumentParser(prog="shape-fairseq average", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="the training's --save-dir")
    parser.add_argument("--number", type=int, default=10, help="how many (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    if args.number < 1:
        raise UserError(f"--number must be at least 1, not {args.number}")
    paths = last_checkpoints(args.folder, args.number)
    checkpoints.save(average(paths), args.output)
