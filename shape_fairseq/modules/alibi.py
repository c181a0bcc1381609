"""ALiBi: scores fall linearly with the distance, in each head at its own rate (Press et al., 2022).

Symmetric, -m * abs(i - j): in a decoder, which sees no future, that is the paper's own.
"""

from math import log2

import torch
from torch import Tensor

from .biased_attention import DistanceBias


def slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ...; where n is no power of two as in the authors' code.

    That takes the slopes of the next lower power of two, and as many as are still wanting of the
    odd ones of the next higher.
    """
    lower = 2 ** int(log2(heads))
    first = [2 ** (-8 * (head + 1) / lower) for head in range(lower)]
    between = [2 ** (-8 * (head + 1) / (2 * lower)) for head in range(0, 2 * (heads - lower), 2)]
    return first + between


class LinearBias(DistanceBias):
    """-m * abs(j - i), with a slope m for each head; nothing is learned."""

    def __init__(self, heads: int):
        super().__init__()
        self.slopes = slopes(heads)

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=dtype, device=distances.device)
        return slopes[:, None] * -distances.abs()
