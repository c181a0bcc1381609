"""What the tests compare of two trainings."""

from pathlib import Path

import torch

from shape_fairseq.compat import FAST_PATH_COPIES

# fairseq 0.12.2 keeps copies of weights that it never trains, and a buffer that it never fills.
UNTRAINED = (*FAST_PATH_COPIES, "_float_tensor")


def trained_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights that a training has made."""
    weights = torch.load(checkpoint, map_location="cpu")["model"]
    return {name: x for name, x in weights.items() if name.split(".")[-1] not in UNTRAINED}
