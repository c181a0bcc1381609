"""Relative attention, exact, in memory that grows with the length and not with its square.

The scores of a block of queries are computed, used and forgotten; the backward pass computes them
again. Relative terms are counted from that of distance -L, which all keys have in common, so that
keys farther than L to the left need nothing more. Those farther to the right have one and the same
term, a column. Only for the near keys, some 2L more than the block has queries, is there a term for
each key, and these terms are a skewed view of the terms by distance:

    distance      -2 -1  0 +1 +2        near keys of these queries (L = 2)
    query 0        0  b  c  d  e         b  c  d  e  e
    query 1        0  g  h  i  j         0  g  h  i  j
    query 2        0  l  m  n  o         0  0  l  m  n

To spread terms over keys (`add_by_distance`) and to sum what keys hold for each distance
(`sum_by_distance`) are adjoint: each is the other's backward. What all keys have in common needs no
sum over keys: weights add up to one, and the gradients of a softmax's inputs to zero.

Shapes: N sequences times heads, Q queries, K keys, d the width of a head, R = 2L + 1 distances; in
a block n, q and k of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


class BlockLimits(NamedTuple):
    """How large a block may be, and up to how many keys a sequence is not worth cutting."""

    queries: int
    scores: int
    short: int = 0


# On the CPU a block stays in the cache; on a GPU few large kernels are better than many small ones.
CPU_LIMITS = BlockLimits(queries=128, scores=1 << 20, short=64)
GPU_LIMITS = BlockLimits(queries=256, scores=1 << 25, short=64)


def clipped_distances(queries: int, keys: int, max_distance: int, device=None) -> Tensor:
    """clip(j - i, -L, L) + L for query i and key j, (Q, K); the queries are the last positions."""
    key = torch.arange(keys, device=device)
    query = key[keys - queries :]
    distance = key[None, :] - query[:, None]
    return distance.clamp(-max_distance, max_distance) + max_distance


class Block(NamedTuple):
    """Some sequences, some neighbouring queries, and the keys that these see."""

    sequences: slice
    queries: slice
    keys: int  # the queries see the keys from 0 up to this one
    position: int  # of the first query among the keys
    near: slice  # keys whose relative term is not the same for all queries of the block

    @property
    def height(self) -> int:
        return self.queries.stop - self.queries.start

    @property
    def width(self) -> int:
        return self.near.stop - self.near.start


def blocks(
    sequences: int, queries: int, keys: int, max_distance: int, causal: bool, limits: BlockLimits
) -> Iterator[Block]:
    """Cut N x Q x K scores into blocks, always in the same order."""
    height = -(-queries // -(-queries // limits.queries))  # of about the same height all
    count = max(1, limits.scores // (height * keys))
    for n in range(0, sequences, count):
        members = slice(n, min(n + count, sequences))
        for first in range(0, queries, height):
            last = min(first + height, queries) - 1
            position = keys - queries + first  # the queries are the last positions
            last_position = keys - queries + last
            visible = last_position + 1 if causal else keys
            start = min(max(position - max_distance + 1, 0), visible)
            near = slice(start, max(start, min(last_position + max_distance, visible)))
            yield Block(members, slice(first, last + 1), visible, position, near)


def skewed(padded: Tensor, block: Block) -> Tensor:
    """A view in which every row begins one column before the row above: n x q x near keys."""
    n, q, columns = padded.shape
    strides = (padded.stride(0), columns - 1, 1)
    return padded.as_strided((n, q, block.width), strides, padded.storage_offset() + q - 1)


def band(block: Block, distances: int) -> tuple[slice, slice]:
    """The distances that near keys have, and their columns in what `skewed` views.

    The columns before them have distance -L, those after them +L.
    """
    first = block.near.start - block.position + distances // 2 - (block.height - 1)
    columns = block.width + block.height - 1
    start = min(max(first, 0), distances)
    stop = min(max(first + columns, start), distances)
    return slice(start, stop), slice(start - first, stop - first)


def add_by_distance(scores: Tensor, by_distance: Tensor, block: Block) -> None:
    """Add to each score (n x q x k) the term of its distance (n x q x R, the first 0), in place."""
    if block.near.stop < block.keys:
        scores[:, :, block.near.stop :] += by_distance[:, :, -1:]
    if block.width > 0:
        scores[:, :, block.near] += near_terms(by_distance, block)


def near_terms(by_distance: Tensor, block: Block) -> Tensor:
    """The terms of the near keys, n x q x near keys."""
    distances, columns = band(block, by_distance.size(2))
    if block.height == 1:  # a step of generation
        return by_distance[:, :, distances]
    after = block.width + block.height - 1 - columns.stop
    padded = torch.cat(
        [
            by_distance[:, :, :1].expand(-1, -1, columns.start),
            by_distance[:, :, distances],
            by_distance[:, :, -1:].expand(-1, -1, after),
        ],
        dim=2,
    )
    return skewed(padded, block)


def sum_by_distance(
    weights: Tensor, block: Block, distances: int, in_common: Tensor | float
) -> Tensor:
    """Sum weights (n x q x k) that have the same distance: n x q x R, the first what all have."""
    n, q, _ = weights.shape
    sums = weights.new_zeros(n, q, distances)
    if block.height == 1 and block.width > 0:
        sums[:, :, band(block, distances)[0]] = weights[:, :, block.near]
    elif block.width > 0:
        known, columns = band(block, distances)
        padded = weights.new_zeros(n, q, block.width + q - 1)
        skewed(padded, block).copy_(weights[:, :, block.near])
        sums[:, :, known] = padded[:, :, columns]
        sums[:, :, -1] += padded[:, :, columns.stop :].sum(2)
    if block.near.stop < block.keys:
        sums[:, :, -1] += weights[:, :, block.near.stop :].sum(2)
    sums[:, :, 0] = in_common
    return sums


def times(rows: Tensor, table: Tensor) -> Tensor:
    """rows @ table, without the copy that matmul makes of a part of a tensor."""
    return torch.bmm(rows, table.expand(rows.size(0), -1, -1))


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a batched matrix product to a total, which may be more precise than its factors."""
    if total.is_contiguous() and total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:  # torch would multiply one matrix after the other
        total += torch.bmm(left, right)


class Options(NamedTuple):
    """What forward and backward must agree on."""

    causal: bool
    dropout: float
    seed: int
    limits: BlockLimits


def attention_weights(
    query: Tensor,  # n x q x d
    key: Tensor,  # n x k x d
    relative_keys: Tensor,  # R x d, the first 0
    mask: Tensor | None,  # n x 1 x k
    block: Block,
    causal: bool,
) -> Tensor:
    """The attention weights of a block, n x q x k."""
    scores = torch.bmm(query, key.transpose(1, 2))
    add_by_distance(scores, times(query, relative_keys.t()), block)
    if mask is not None:
        scores += mask
    if causal:
        future = scores.new_ones(block.height, block.height, dtype=torch.bool).triu(1)
        scores[:, :, block.position :].masked_fill_(future, -torch.inf)
    precise = torch.promote_types(scores.dtype, torch.float32)
    return torch.softmax(scores, dim=-1, dtype=precise).type_as(scores)


def weighted_blocks(
    query: Tensor, key: Tensor, relative_keys: Tensor, mask: Tensor | None, options: Options
) -> Iterator[tuple[Block, Tensor, Tensor | None]]:
    """All blocks with their weights and which of these dropout keeps; the same every time."""
    generator = torch.Generator(query.device) if options.dropout else None
    if generator is not None:
        generator.manual_seed(options.seed)
    sequences, queries = query.shape[:2]
    distance = relative_keys.size(0) // 2
    for block in blocks(sequences, queries, key.size(1), distance, options.causal, options.limits):
        n, q, k = block.sequences, block.queries, slice(block.keys)
        seen = None if mask is None else mask[n, :, k]
        weights = attention_weights(
            query[n, q], key[n, k], relative_keys, seen, block, options.causal
        )
        kept = None if generator is None else draw_kept(weights, options.dropout, generator)
        yield block, weights, kept


DROPOUT_STEPS = 1 << 16  # a random number of 16 bits decides whether a weight is dropped


def kept_factor(dropout: float) -> float:
    """What the weights that are not dropped are multiplied with, to keep the expectation."""
    kept = DROPOUT_STEPS - round(dropout * DROPOUT_STEPS)
    return DROPOUT_STEPS / kept if kept else 0.0


def draw_kept(weights: Tensor, dropout: float, generator: torch.Generator | None = None) -> Tensor:
    """One for a weight that is kept, zero for one that is dropped.

    A random number of 64 bits decides about four weights; on a CPU that is several times as fast as
    torch's bernoulli_.
    """
    steps = round(dropout * DROPOUT_STEPS)
    if steps == DROPOUT_STEPS:
        return torch.zeros_like(weights)
    count = weights.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64, device=weights.device)
    bits.random_(-(1 << 63), None, generator=generator)
    kept = bits.view(torch.int16)[:count] >= steps - DROPOUT_STEPS // 2
    return kept.to(weights.dtype).view(weights.shape)


class BlockwiseRelativeAttention(torch.autograd.Function):
    """The attention of all blocks, with a backward pass that computes the weights again.

    Both tables (R x d) are counted from distance -L. What all keys have in common is the first row
    of the values; that of the keys is 0, as it would not change a softmax.
    """

    @staticmethod
    def forward(ctx, query, key, value, relative_keys, relative_values, mask, options: Options):
        distances = relative_keys.size(0)
        output = torch.empty_like(query)  # N x Q x d
        mass = query.new_empty(*query.shape[:2], distances)  # weight of each distance, N x Q x R
        for block, weights, kept in weighted_blocks(query, key, relative_keys, mask, options):
            n, q, k = block.sequences, block.queries, slice(block.keys)
            if kept is not None:
                weights *= kept
            total = 1.0 if kept is None else weights.sum(2)
            mass[n, q] = sum_by_distance(weights, block, distances, total)
            relative = times(mass[n, q], relative_values)  # n x q x d
            output[n, q] = relative.baddbmm_(weights, value[n, k])
        if options.dropout:
            output *= kept_factor(options.dropout)
        ctx.save_for_backward(query, key, value, relative_keys, relative_values, mask, output, mass)
        ctx.options = options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value, relative_keys, relative_values, mask, output, mass = ctx.saved_tensors
        options = ctx.options
        distances = relative_keys.size(0)
        precise = torch.promote_types(query.dtype, torch.float32)
        grad_query = torch.empty_like(query)
        grad_key = key.new_zeros(key.shape, dtype=precise)
        grad_value = value.new_zeros(value.shape, dtype=precise)
        grad_relative_keys = torch.zeros_like(relative_keys, dtype=precise)
        grad_relative_values = torch.zeros_like(relative_values, dtype=precise)
        # The gradient of a softmax is weights * (grad - sum(weights * grad)), and that sum is the
        # product of the output with its gradient, whatever was dropped.
        products = (grad_output * output).sum(2, keepdim=True)  # N x Q x 1
        if options.dropout:
            grad_output = grad_output * kept_factor(options.dropout)
        for block, weights, kept in weighted_blocks(query, key, relative_keys, mask, options):
            n, q, k = block.sequences, block.queries, slice(block.keys)
            used = weights if kept is None else weights * kept
            block_grad_output = grad_output[n, q]  # n x q x d
            add_product(grad_value[n, k], used.transpose(1, 2), block_grad_output)

            by_distance = times(block_grad_output, relative_values.t())  # n x q x R
            in_common = by_distance[:, :, :1] - (products[n, q] if kept is None else 0)
            grad_scores = torch.bmm(block_grad_output, value[n, k].transpose(1, 2))  # n x q x k
            grad_scores += in_common
            by_distance[:, :, 0] = 0
            add_by_distance(grad_scores, by_distance, block)
            if kept is not None:
                grad_scores.mul_(kept).sub_(products[n, q])
            grad_scores *= weights

            by_distance = sum_by_distance(grad_scores, block, distances, 0.0)
            relative = times(by_distance, relative_keys)  # n x q x d
            grad_query[n, q] = relative.baddbmm_(grad_scores, key[n, k])
            add_product(grad_key[n, k], grad_scores.transpose(1, 2), query[n, q])
            grad_relative_keys += torch.bmm(by_distance.transpose(1, 2), query[n, q]).sum(0)
            grad_relative_values += torch.bmm(mass[n, q].transpose(1, 2), block_grad_output).sum(0)
        return (
            grad_query,
            grad_key.type_as(key),
            grad_value.type_as(value),
            grad_relative_keys.type_as(relative_keys),
            grad_relative_values.type_as(relative_values),
            None,
            None,
        )


class ShortRelativeAttention(torch.autograd.Function):
    """The attention of sequences so short that every pair of positions has its embeddings.

    The relative products are then one large product for each query position, and the weights, no
    larger than the queries, are kept for the backward pass.
    """

    @staticmethod
    def forward(ctx, query, key, value, pair_keys, pair_values, mask, causal, dropout):
        # pair_keys and pair_values: Q x K x d
        relative = torch.bmm(query.transpose(0, 1), pair_keys.transpose(1, 2))  # Q x N x K
        scores = torch.baddbmm(relative.transpose(0, 1), query, key.transpose(1, 2))  # N x Q x K
        if mask is not None:
            scores += mask
        if causal:
            queries, keys = scores.shape[1:]
            future = scores.new_ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
            scores.masked_fill_(future, -torch.inf)
        precise = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim=-1, dtype=precise).type_as(scores)
        kept = None
        if dropout:
            kept = draw_kept(weights, dropout).mul_(kept_factor(dropout))
        used = weights if kept is None else weights * kept
        output = torch.bmm(used.transpose(0, 1), pair_values)  # Q x N x d
        output += torch.bmm(used, value).transpose(0, 1)
        ctx.save_for_backward(query, key, value, pair_keys, pair_values, weights, used, kept)
        return output.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value, pair_keys, pair_values, weights, used, kept = ctx.saved_tensors
        by_position = grad_output.transpose(0, 1)  # Q x N x d
        relative = torch.bmm(by_position, pair_values.transpose(1, 2))  # Q x N x K
        grad_scores = torch.baddbmm(relative.transpose(0, 1), grad_output, value.transpose(1, 2))
        if kept is not None:
            grad_scores *= kept
        grad_scores *= weights
        grad_scores.addcmul_(weights, grad_scores.sum(2, keepdim=True), value=-1)  # N x Q x K

        grad_query = torch.bmm(grad_scores.transpose(0, 1), pair_keys)  # Q x N x d
        grad_query += torch.bmm(grad_scores, key).transpose(0, 1)
        return (
            grad_query.transpose(0, 1),
            torch.bmm(grad_scores.transpose(1, 2), query),
            torch.bmm(used.transpose(1, 2), grad_output),
            torch.bmm(grad_scores.permute(1, 2, 0), query.transpose(0, 1)),
            torch.bmm(used.permute(1, 2, 0), by_position),
            None,
            None,
            None,
        )


def blockwise_relative_attention(
    query: Tensor,  # N x Q x d, scaled
    key: Tensor,  # N x K x d
    value: Tensor,  # N x K x d
    relative_keys: Tensor,  # R x d
    relative_values: Tensor,  # R x d
    mask: Tensor | None = None,  # added to the scores, N x 1 x K
    causal: bool = False,
    dropout: float = 0.0,
    limits: BlockLimits | None = None,
) -> Tensor:
    """Attend with keys k_j + a_(j-i) and values v_j + b_(j-i): N x Q x d."""
    if limits is None:
        limits = CPU_LIMITS if query.device.type == "cpu" else GPU_LIMITS
    if query.size(1) > 1 and key.size(1) <= min(limits.short, query.size(2)):
        max_distance = relative_keys.size(0) // 2
        pairs = clipped_distances(query.size(1), key.size(1), max_distance, query.device)
        return ShortRelativeAttention.apply(
            *(query, key, value),
            functional.embedding(pairs, relative_keys).type_as(query),
            functional.embedding(pairs, relative_values).type_as(query),
            *(mask, causal, dropout),
        )
    # Mixed precision: the tables are parameters in fp32.
    relative_keys = (relative_keys - relative_keys[:1]).type_as(query)
    relative_values = torch.cat([relative_values[:1], relative_values[1:] - relative_values[:1]])
    # Drawn on the CPU, so that a GPU need not be waited for.
    seed = int(torch.randint(1 << 62, (), device="cpu")) if dropout else 0
    return BlockwiseRelativeAttention.apply(
        query,
        key,
        value,
        relative_keys,
        relative_values.type_as(query),
        mask,
        Options(causal, dropout, seed, limits),
    )
