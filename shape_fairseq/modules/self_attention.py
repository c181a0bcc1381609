"""fairseq's self-attention for representations that know positions by their distance.

A representation overrides one of three methods: `place` turns queries and keys (RoPE), `bias` adds
to the scores (ALiBi, T5), `attend` does it all in another way (RPE).

Shapes: B sequences, N = B times heads, Q queries, K keys, d the width of a head.
"""

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


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


class DistanceSelfAttention(MultiheadAttention):
    """fairseq's self-attention; what depends on distances is left to subclasses."""

    def __init__(self, *args, causal: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.causal = causal  # attn_mask, where there is one, hides the future and nothing else

    def place(self, query: Tensor, key: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (N x T x d) of which the first stands at position `first`."""
        return query, key

    def bias(self, queries: int, keys: int, hide_future: bool) -> Tensor | None:
        """What is added to the scores, heads x Q x K; the queries are the last positions."""
        return None

    def hides_future(self, attn_mask: Tensor | None) -> bool:
        """Whether the mask says no more than that a query sees nothing after itself."""
        return self.causal and attn_mask is not None

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
        cache = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        q, k = self.place(q, k, first=cache["prev_key"].size(2) if "prev_key" in cache else 0)
        if incremental_state is not None:
            k, v, key_padding_mask = self._extend_cache(
                incremental_state, cache, k, v, key_padding_mask
            )
        need_weights = need_weights or need_head_weights
        output, weights = self.attend(q, k, v, attn_mask, key_padding_mask, need_weights)
        output = self.out_proj(output.transpose(0, 1).reshape(length, batch, width))
        if not need_weights:
            return output, None
        weights = weights.view(batch, self.num_heads, length, -1).transpose(0, 1)
        return output, weights if need_head_weights else weights.mean(dim=0)

    def attend(
        self,
        query: Tensor,  # N x Q x d, scaled
        key: Tensor,  # N x K x d
        value: Tensor,  # N x K x d
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, N x Q x d, and where they are asked for the weights, N x Q x K."""
        simply_causal = self.hides_future(attn_mask)
        bias = self.bias(query.size(1), key.size(1), simply_causal)
        if bias is not None and simply_causal:
            attn_mask = None  # the bias hides the future
        if bias is None and key_padding_mask is None and simply_causal and not need_weights:
            mask = None  # torch needs none: its memory grows with the length, not with its square
        else:
            simply_causal = False
            mask = self._mask(bias, attn_mask, key_padding_mask, query.dtype)
        if need_weights:
            scores = query @ key.transpose(1, 2)  # N x Q x K
            if mask is not None:
                scores = (scores.unflatten(0, (-1, self.num_heads)) + mask).flatten(0, 1)
            precise = torch.promote_types(scores.dtype, torch.float32)
            weights = scores.softmax(dim=-1, dtype=precise)
            return self.dropout_module(weights.type_as(scores)) @ value, weights
        query, key, value = (x.unflatten(0, (-1, self.num_heads)) for x in (query, key, value))
        output = scaled_dot_product_attention(
            query,  # B x heads x T x d
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout_now,
            is_causal=simply_causal,
            scale=1.0,
        )
        return output.flatten(0, 1), None

    @property
    def dropout_now(self) -> float:
        """The share of weights that is dropped, in training or when fairseq is told to."""
        drops = self.training or self.dropout_module.apply_during_inference
        return self.dropout_module.p if drops else 0.0

    def _mask(self, bias, attn_mask, key_padding_mask, dtype) -> Tensor | None:
        """All that is added to the scores, B x heads x Q x K or broadcast to it."""
        mask = joint_mask(attn_mask, key_padding_mask, 1, dtype)  # B x Q x K or broadcast to it
        mask = None if mask is None else mask.unsqueeze(1)
        if bias is None:
            return mask
        bias = bias.to(dtype).unsqueeze(0)  # 1 x heads x Q x K
        return bias if mask is None else bias + mask

    def _heads(self, x: Tensor) -> Tensor:
        """Split the width into heads: T x B x C to N x T x d."""
        length, batch, _ = x.shape
        return x.reshape(length, batch * self.num_heads, self.head_dim).transpose(0, 1)

    def _extend_cache(self, incremental_state, cache, k, v, key_padding_mask):
        """Put the keys and values of earlier steps before the new ones, and remember them all."""
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
