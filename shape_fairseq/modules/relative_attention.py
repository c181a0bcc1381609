"""Relative attention of Shaw et al. (2018): first the math as plain functions, then the module.

Shapes: N sequences times heads, Q queries, K keys, d the width of a head, L the largest distance
that is told apart, R = 2L + 1 the number of distances.
"""

from collections.abc import Callable

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .blockwise_attention import blockwise_relative_attention, clipped_distances


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


def joint_mask(
    attn_mask: Tensor | None,  # Q x K, added to the scores
    key_padding_mask: Tensor | None,  # B x K, true at padding
    num_heads: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """Both of fairseq's masks as one to add, finite so that a wholly masked query is no NaN."""
    # Half of the smallest number leaves room for the score it is added to, in fp16 too.
    blocked = torch.finfo(dtype).min / 2
    mask = None if attn_mask is None else attn_mask.to(dtype).clamp(min=blocked).unsqueeze(0)
    if key_padding_mask is None:
        return mask
    padding = key_padding_mask.bool().repeat_interleave(num_heads, dim=0).unsqueeze(1)  # N x 1 x K
    zeros = torch.zeros((), dtype=dtype, device=padding.device) if mask is None else mask
    return torch.where(padding, torch.full_like(zeros, blocked), zeros)


class RelativeMultiheadAttention(MultiheadAttention):
    """fairseq's self-attention with learned key and value embeddings of the clipped distance."""

    def __init__(self, *args, max_relative_distance: int, causal: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.causal = causal  # attn_mask, where there is one, hides the future and nothing else
        rows = 2 * max_relative_distance + 1
        self.relative_keys = nn.Parameter(torch.empty(rows, self.head_dim))
        self.relative_values = nn.Parameter(torch.empty(rows, self.head_dim))
        nn.init.xavier_uniform_(self.relative_keys)
        nn.init.xavier_uniform_(self.relative_values)

    def forward(
        self,
        query,  # T x B x C
        key,
        value,
        key_padding_mask=None,  # B x K
        incremental_state=None,
        need_weights=True,
        static_kv=False,
        attn_mask=None,  # T x K
        before_softmax=False,
        need_head_weights=False,
    ):
        """Self-attention; the same arguments and results as fairseq's."""
        length, batch, width = query.shape
        q = self._heads(self.q_proj(query).mul_(self.scaling))  # N x T x d
        k = self._heads(self.k_proj(query))
        v = self._heads(self.v_proj(query))
        if incremental_state is not None:
            k, v, key_padding_mask = self._extend_cache(incremental_state, k, v, key_padding_mask)

        need_weights = need_weights or need_head_weights
        if need_weights or (attn_mask is not None and not self.causal):
            mask = joint_mask(attn_mask, key_padding_mask, self.num_heads, q.dtype)
            tables = self.relative_keys, self.relative_values
            output, weights = relative_attention(q, k, v, *tables, mask, self.dropout_module)
        else:
            output = self._attend(q, k, v, attn_mask, key_padding_mask)
        output = self.out_proj(output.transpose(0, 1).reshape(length, batch, width))
        if not need_weights:
            return output, None
        weights = weights.view(batch, self.num_heads, length, -1).transpose(0, 1)
        return output, weights if need_head_weights else weights.mean(dim=0)

    def _attend(self, q, k, v, future_mask, key_padding_mask) -> Tensor:
        """Attention without weights to show for it."""
        drops = self.training or self.dropout_module.apply_during_inference
        return blockwise_relative_attention(
            q,
            k,
            v,
            self.relative_keys,
            self.relative_values,
            joint_mask(None, key_padding_mask, self.num_heads, q.dtype),
            causal=future_mask is not None,
            dropout=self.dropout_module.p if drops else 0.0,
        )

    def _heads(self, x: Tensor) -> Tensor:
        """Split the width into heads: T x B x C to N x T x d."""
        length, batch, _ = x.shape
        return x.reshape(length, batch * self.num_heads, self.head_dim).transpose(0, 1)

    def _extend_cache(self, incremental_state, k, v, key_padding_mask):
        """Put the keys and values of earlier steps before the new ones, and remember them all."""
        cache = self._get_input_buffer(incremental_state)
        batch = k.size(0) // self.num_heads
        if "prev_key" in cache:  # B x heads x K x d, as fairseq reorders it for beam search
            k = torch.cat([cache["prev_key"].flatten(0, 1), k], dim=1)
            v = torch.cat([cache["prev_value"].flatten(0, 1), v], dim=1)
        key_padding_mask = self._append_prev_key_padding_mask(
            key_padding_mask=key_padding_mask,
            prev_key_padding_mask=cache.get("prev_key_padding_mask"),
            batch_size=batch,
            src_len=k.size(1),
            static_kv=False,
        )
        cache["prev_key"] = k.view(batch, self.num_heads, -1, self.head_dim)
        cache["prev_value"] = v.view(batch, self.num_heads, -1, self.head_dim)
        cache["prev_key_padding_mask"] = key_padding_mask
        self._set_input_buffer(incremental_state, cache)
        return k, v, key_padding_mask
