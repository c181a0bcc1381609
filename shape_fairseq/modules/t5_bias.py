"""T5 bias: a learned bias for each head and bucket of distances (Raffel et al., 2020).

Only the bias is T5's: scores are scaled by the width of a head, as fairseq's are.
"""

from math import log

import torch
from torch import Tensor, nn

from .biased_attention import DistanceBias


def bucket(distances: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """The bucket of each distance j - i, as in the authors' code.

    Half of the buckets hold one distance each, the others ever more of them up to `max_distance`,
    and the last all beyond. Where the future is visible it has half of all buckets, the later ones.
    """
    if not causal:
        buckets //= 2
    future = distances > 0
    exact = buckets // 2
    far = distances.abs() if not causal else distances.clamp(max=0).neg()
    # Clamped, as the logarithm of 0 is not needed.
    growth = torch.log(far.clamp(min=exact).float() / exact) / log(max_distance / exact)
    logarithmic = exact + (growth * (buckets - exact)).long()
    near_or_far = torch.where(far < exact, far, logarithmic.clamp(max=buckets - 1))
    return near_or_far if causal else near_or_far + future * buckets


class BucketedBias(DistanceBias):
    """A learned table, buckets x heads, that all layers of a side look distances up in."""

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool, width: int):
        super().__init__(nn.Parameter(torch.empty(buckets, heads)))
        self.max_distance = max_distance
        self.causal = causal
        nn.init.normal_(self.table, std=width**-0.5)

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        rows = bucket(distances, len(self.table), self.max_distance, self.causal)
        return self.table[rows].t().to(dtype)
