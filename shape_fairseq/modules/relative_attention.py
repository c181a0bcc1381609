"""Relative attention of Shaw et al. (2018): first the math as plain functions, then the module.

Shapes: N sequences times heads, Q queries, K keys, d the width of a head, L the largest distance
that is told apart, R = 2L + 1 the number of distances.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .blockwise_attention import blockwise_relative_attention, clipped_distances
from .fused_attention import fused_relative_attention, use_fused
from .self_attention import DistanceSelfAttention, joint_mask


def relative_attention(
    query: Tensor,  # N x Q x d, scaled
    key: Tensor,  # N x K x d
    value: Tensor,  # N x K x d
    relative_keys: Tensor,  # R x d
    relative_values: Tensor,  # R x d
    mask: Tensor | None = None,  # added to the scores, N x Q x K or broadcast to it
    dropout: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> tuple[Tensor, Tensor]:
    """Attend with keys k_j + a_(j-i) and values v_j + b_(j-i); output (N, Q, d), weights (N, Q, K).

    Only R distances exist, so q·a is computed for these and spread over the keys, and the weights
    are summed for each distance before they meet b: no tensor of size Q x K x d is made. Models
    are trained with `blockwise_relative_attention`, which is faster and needs less memory; this one
    is for who wants to see the weights.
    """
    max_distance = relative_keys.size(0) // 2
    distances = clipped_distances(query.size(1), key.size(1), max_distance, query.device)
    distances = distances.expand(query.size(0), -1, -1)  # N x Q x K

    by_distance = query @ relative_keys.t()  # N x Q x R
    scores = query @ key.transpose(1, 2) + by_distance.gather(2, distances)  # N x Q x K
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))

    kept = dropout(weights.type_as(scores))
    mass = torch.zeros_like(by_distance).scatter_add(2, distances, kept)  # N x Q x R
    return kept @ value + mass @ relative_values, weights


class RelativeMultiheadAttention(DistanceSelfAttention):
    """fairseq's self-attention with learned key and value embeddings of the clipped distance."""

    def __init__(self, *args, max_relative_distance: int, implementation: str = "auto", **kwargs):
        super().__init__(*args, **kwargs)
        self.implementation = implementation  # see --relative-attention
        rows = 2 * max_relative_distance + 1
        self.relative_keys = nn.Parameter(torch.empty(rows, self.head_dim))
        self.relative_values = nn.Parameter(torch.empty(rows, self.head_dim))
        nn.init.xavier_uniform_(self.relative_keys)
        nn.init.xavier_uniform_(self.relative_values)

    def attend(self, q, k, v, attn_mask, key_padding_mask, need_weights):
        """Fused or blockwise, unless somebody wants to see the weights."""
        if need_weights or (attn_mask is not None and not self.causal):
            mask = joint_mask(attn_mask, key_padding_mask, self.num_heads, q.dtype)
            tables = self.relative_keys, self.relative_values
            return relative_attention(q, k, v, *tables, mask, self.dropout_module)
        return self._attend(q, k, v, attn_mask, key_padding_mask), None

    def _attend(self, q, k, v, future_mask, key_padding_mask) -> Tensor:
        """Attention without weights to show for it."""
        tables = self.relative_keys, self.relative_values
        dropout = self.dropout_now
        if use_fused(self.implementation, q, k, len(self.relative_keys), dropout):
            causal = future_mask is not None
            return fused_relative_attention(q, k, v, *tables, key_padding_mask, causal, dropout)
        return blockwise_relative_attention(
            *(q, k, v, *tables),
            joint_mask(None, key_padding_mask, self.num_heads, q.dtype),
            causal=future_mask is not None,
            dropout=dropout,
        )
