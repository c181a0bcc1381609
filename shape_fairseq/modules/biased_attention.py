"""What ALiBi and T5 share: a bias for each head and distance, the same in all layers of a side."""

import torch
from torch import Tensor, nn

from .self_attention import DistanceSelfAttention


def spread_over_keys(by_distance: Tensor, queries: int, keys: int) -> Tensor:
    """From the terms of distances 1 - K ... Q - 1, heads x (Q + K - 1), to heads x Q x K.

    The queries are the last of the keys' positions. Cut into rows that are one term too short, the
    repeated terms move by one from row to row: no index is made, and the gradient is a plain sum.
    """
    if queries == 1:  # a step of generation
        return by_distance.unsqueeze(1)
    heads, terms = by_distance.shape
    repeated = by_distance.unsqueeze(1).expand(-1, queries, -1).reshape(heads, -1)
    rows = repeated[:, queries - 1 :][:, : queries * (terms - 1)]
    return rows.unflatten(1, (queries, terms - 1))[:, :, :keys]


class DistanceBias(nn.Module):
    """A bias for each head and distance; one module serves all layers of an encoder or decoder."""

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias of distances j - i, from query i to key j: heads x distances."""
        raise NotImplementedError

    def forward(self, queries: int, keys: int, like: Tensor) -> Tensor:
        """The bias of all pairs, heads x Q x K, on the device of `like`."""
        distances = torch.arange(1 - keys, queries, device=like.device)
        precise = torch.promote_types(like.dtype, torch.float32)
        return spread_over_keys(self.by_distance(distances, precise), queries, keys)


class BiasedSelfAttention(DistanceSelfAttention):
    """fairseq's self-attention with a bias that is added to its scores."""

    def __init__(self, *args, distance_bias: DistanceBias, **kwargs):
        super().__init__(*args, **kwargs)
        self.distance_bias = distance_bias

    def bias(self, queries: int, keys: int) -> Tensor:
        return self.distance_bias(queries, keys, like=self.out_proj.weight)
