"""What ALiBi and T5 share: a bias for each head and distance, the same in all layers of a side."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from .self_attention import DistanceSelfAttention, joint_mask

BLOCK_SIZE = 1 << 18  # scores that a backward pass looks at together: they stay in a CPU's cache


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

    def __init__(self, table: nn.Parameter | None = None):
        super().__init__()
        self.register_parameter("table", table)  # what is learned, if something is
        self._kept: tuple[tuple, Tensor | None, Tensor] | None = None

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias of distances j - i, from query i to key j: heads x distances."""
        raise NotImplementedError

    def terms(self, queries: int, keys: int, like: Tensor, hide_future: bool) -> Tensor:
        """The bias of distances 1 - K ... Q - 1, heads x (Q + K - 1), of the type of `like`."""
        distances = torch.arange(1 - keys, queries, device=like.device)
        precise = torch.promote_types(like.dtype, torch.float32)
        terms = self.by_distance(distances, precise).to(like.dtype)
        if hide_future:
            terms = terms.masked_fill(distances > 0, torch.finfo(like.dtype).min / 2)
        return terms

    def forward(self, queries: int, keys: int, like: Tensor, hide_future: bool = False) -> Tensor:
        """The bias of all pairs, heads x Q x K, on the device of `like`."""
        learns = self.table is not None and (torch.is_grad_enabled() or like.device.type != "cpu")
        if learns:
            return spread_over_keys(self.terms(queries, keys, like, hide_future), queries, keys)
        return self.kept(queries, keys, like, hide_future)

    @torch.no_grad()
    def kept(self, queries: int, keys: int, like: Tensor, hide_future: bool) -> Tensor:
        """The same, without a gradient: computed by a side's first layer, kept for the others."""
        shape = (queries, keys, like.dtype, like.device, hide_future)
        if self._kept is not None and self._kept[0] == shape and self._still_has(self._kept[1]):
            return self._kept[2]
        table = None if self.table is None else self.table.clone()
        bias = spread_over_keys(self.terms(queries, keys, like, hide_future), queries, keys)
        self._kept = (shape, table, bias.contiguous())
        return self._kept[2]

    def _still_has(self, table: Tensor | None) -> bool:
        # fairseq's optimizers write behind torch's back: only the numbers tell.
        return table is None or self.table.equal(table)


class LearnedBiasAttention(torch.autograd.Function):
    """Attention with a learned bias on a CPU, where torch's fused attention has no gradient for it.

    Forward it is torch's. The backward pass computes the scores anew, in blocks, and sums their
    gradients by distance block by block: nothing of the size of all scores is written.
    """

    @staticmethod
    def forward(ctx, query, key, value, terms, bias, mask, hides_future: bool):
        both = bias.unsqueeze(0)  # B x heads x Q x K or broadcast to it
        if mask is not None:
            both = both + mask
        output = scaled_dot_product_attention(query, key, value, attn_mask=both, scale=1.0)
        ctx.save_for_backward(query, key, value, bias, mask, output)
        ctx.hides_future = hides_future
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value, bias, mask, output = ctx.saved_tensors
        queries, keys = query.size(2), key.size(2)
        grad_query, grad_key, grad_value = map(torch.zeros_like, (query, key, value))
        precise = torch.promote_types(query.dtype, torch.float32)
        grad_terms = query.new_zeros(query.size(1), queries + keys - 1, dtype=precise)
        products = (grad_output * output).sum(-1, keepdim=True)
        for b, h, rows in blocks(query.shape[:3], keys):
            seen = keys - queries + rows.stop if ctx.hides_future else keys
            q, grad = query[b, h, rows], grad_output[b, h, rows]
            k, v = key[b, h, :seen], value[b, h, :seen]
            scores = (q @ k.transpose(2, 3)).add_(bias[h, rows, :seen])
            if mask is not None:
                scores += mask[b, :, rows if mask.size(2) > 1 else slice(None), :seen]
            weights = scores.softmax(-1)
            grad_value[b, h, :seen] += weights.transpose(2, 3) @ grad
            grad_scores = (grad @ v.transpose(2, 3)).sub_(products[b, h, rows]).mul_(weights)
            grad_query[b, h, rows] = grad_scores @ k
            grad_key[b, h, :seen] += grad_scores.transpose(2, 3) @ q
            # The last row's distances come first.
            first, number = queries - rows.stop, rows.stop - rows.start + seen - 1
            grad_terms[h, first : first + number] += diagonal_sums(grad_scores)
        return grad_query, grad_key, grad_value, grad_terms.to(query.dtype), None, None, None


def blocks(shape: tuple[int, ...], keys: int) -> Iterator[tuple[slice, ...]]:
    """Slices of sequences, heads and queries, such that the scores of each are a block."""
    steps, room = [1, 1, 1], max(1, BLOCK_SIZE // keys)
    for axis in (2, 1, 0):  # queries first, then heads, then sequences
        steps[axis] = min(shape[axis], room)
        room = max(1, room // shape[axis])
    starts = (range(0, size, step) for size, step in zip(shape, steps, strict=True))
    for first in product(*starts):
        yield tuple(
            slice(start, min(start + step, size))
            for start, step, size in zip(first, steps, shape, strict=True)
        )


def diagonal_sums(matrices: Tensor) -> Tensor:
    """The sums of the diagonals of B x heads x Q x K over all sequences: heads x (Q + K - 1).

    With Q - 1 zeros before the first row and Q behind each, cut into rows that are one number
    longer, all numbers of a diagonal stand in one column.
    """
    batch, heads, queries, keys = matrices.shape
    memory = matrices.new_zeros(batch, heads, queries * (queries + keys + 1))
    rows = memory[:, :, queries - 1 : -1].unflatten(2, (queries, queries + keys))
    rows[..., :keys] = matrices
    columns = memory.unflatten(2, (queries, -1))[..., : queries + keys - 1]
    return columns.sum((0, 2), dtype=torch.promote_types(matrices.dtype, torch.float32))


class BiasedSelfAttention(DistanceSelfAttention):
    """fairseq's self-attention with a bias that is added to its scores."""

    def __init__(self, *args, distance_bias: DistanceBias, **kwargs):
        super().__init__(*args, **kwargs)
        self.distance_bias = distance_bias

    def bias(self, queries: int, keys: int, hide_future: bool) -> Tensor:
        return self.distance_bias(queries, keys, self.out_proj.weight, hide_future)

    def attend(self, query, key, value, attn_mask, key_padding_mask, need_weights):
        """As for other models; a learned bias on a CPU has a gradient of its own."""
        learns = self.distance_bias.table is not None and torch.is_grad_enabled()
        if not learns or query.device.type != "cpu" or self.dropout_now or need_weights:
            return super().attend(query, key, value, attn_mask, key_padding_mask, need_weights)
        hides_future = self.hides_future(attn_mask)
        if hides_future:
            attn_mask = None
        pairs = (query.size(1), key.size(1), query, hides_future)
        mask = joint_mask(attn_mask, key_padding_mask, 1, query.dtype)
        if mask is not None:  # B x 1 x Q x K, or x 1 x K
            mask = mask.expand(query.size(0) // self.num_heads, -1, -1).unsqueeze(1)
        output = LearnedBiasAttention.apply(
            *(x.unflatten(0, (-1, self.num_heads)) for x in (query, key, value)),
            self.distance_bias.terms(*pairs),
            self.distance_bias.kept(*pairs),
            mask,
            hides_future,
        )
        return output.flatten(0, 1), None
