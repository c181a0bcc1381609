"""RPE as OpenNMT-py and tensor2tensor compute it: an embedding for each pair of positions.

Written from the formulas of Shaw et al. (section 3.3), to be measured against. Tensors of T x T x d
are looked up, multiplied and kept for the backward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from shape_fairseq.modules.blockwise_attention import clipped_distances
from shape_fairseq.modules.relative_attention import RelativeMultiheadAttention, joint_mask


def lookup_attention(
    query: Tensor,  # N x Q x d, scaled
    key: Tensor,  # N x K x d
    value: Tensor,  # N x K x d
    relative_keys: Tensor,  # R x d
    relative_values: Tensor,  # R x d
    mask: Tensor | None = None,  # added to the scores, N x Q x K or broadcast to it
    dropout: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> Tensor:
    """The same result as `relative_attention`, through embeddings of the matrix of distances."""
    max_distance = relative_keys.size(0) // 2
    distances = clipped_distances(query.size(1), key.size(1), max_distance, query.device)
    keys = functional.embedding(distances, relative_keys)  # Q x K x d
    values = functional.embedding(distances, relative_values)  # Q x K x d

    scores = torch.bmm(query, key.transpose(1, 2))  # N x Q x K
    scores = scores + torch.bmm(query.transpose(0, 1), keys.transpose(1, 2)).transpose(0, 1)
    if mask is not None:
        scores = scores + mask
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = dropout(scores.softmax(dim=-1, dtype=precise).type_as(scores))
    by_position = torch.bmm(weights.transpose(0, 1), values).transpose(0, 1)  # N x Q x d
    return torch.bmm(weights, value) + by_position


class LookupMultiheadAttention(RelativeMultiheadAttention):
    """The module of RPE with the other formulation in it."""

    def _attend(self, q, k, v, future_mask, key_padding_mask) -> Tensor:
        mask = joint_mask(future_mask, key_padding_mask, self.num_heads, q.dtype)
        tables = self.relative_keys, self.relative_values
        return lookup_attention(q, k, v, *tables, mask, self.dropout_module)
