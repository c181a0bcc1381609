"""Triton kernels of relative attention: one launch forward, two backward, no T x T tensor.

Tables are counted from distance -L, which all keys have in common: of the 2L + 1 distances C = 2L
remain, column c of which is distance c - L + 1, the last one for all keys that are L or more to the
right. A tile of scores is far to the left (no relative term), far to the right (the same term for
all its keys) or near the diagonal. In a near tile every pair of a query and a column has exactly
one key, the last column aside, so that to spread terms over keys and to sum what keys hold for each
distance are both a gather:

    term of key j     = terms[query, j - position + L - 1]
    mass of column c  = weights[query, position + c - L + 1]

Scores and logarithms are to the base 2, sums in fp32. Dropout takes its random numbers from
Philox by sequence, query and key, whatever the tiles. No atomics: the same bits every time.

Shapes: M queries and K keys in a tile, D the width of a head, C columns, padded to a power of two.
"""

import triton
import triton.language as tl

LEFT = tl.constexpr(0)
NEAR = tl.constexpr(1)
RIGHT = tl.constexpr(2)
# A padded key: finite, so that a query that sees nothing else has no NaN.
PADDED = tl.constexpr(-1.0e30)
PHILOX_ROUNDS = tl.constexpr(7)  # as FlashAttention; passes BigCrush (Salmon et al., 2011)


@triton.jit
def load_rows(base, rows, stride, count, D: tl.constexpr):
    """Rows of a matrix; zeros beyond the last."""
    columns = tl.arange(0, D)
    pointers = base + rows[:, None] * stride + columns[None, :]
    return tl.load(pointers, mask=(rows < count)[:, None], other=0.0)


@triton.jit
def store_rows(base, rows, stride, count, values, D: tl.constexpr):
    """Write the rows that exist."""
    columns = tl.arange(0, D)
    pointers = base + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, values.to(base.dtype.element_ty), mask=(rows < count)[:, None])


@triton.jit
def load_table(table, distances, dtype: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """A table without its first row, which is subtracted (C x D), its last row, its first row."""
    columns = tl.arange(0, D)
    first = tl.load(table + columns).to(tl.float32)
    last = tl.load(table + (distances - 1) * D + columns).to(tl.float32) - first
    rows = tl.arange(0, C)
    pointers = table + (rows + 1)[:, None] * D + columns[None, :]
    exists = (rows < distances - 1)[:, None]
    rest = tl.load(pointers, mask=exists, other=0.0).to(tl.float32)
    rest = tl.where(exists, rest - first[None, :], 0.0)
    return rest.to(dtype), last, first


@triton.jit
def add_relative(
    scores, terms, last, positions, keys, distances, region: tl.constexpr, C: tl.constexpr
):
    """Add to each score the term of its distance; terms M x C, last M."""
    if region == NEAR:
        half = distances // 2
        delta = keys[None, :] - positions[:, None]
        column = tl.minimum(tl.maximum(delta + half - 1, 0), C - 1)
        term = tl.gather(terms, column, 1)
        term = tl.where(delta >= half, last[:, None], term)
        scores += tl.where(delta > -half, term, 0.0)
    elif region == RIGHT:
        scores += last[:, None]
    return scores


@triton.jit
def sum_by_distance(
    near,
    right,
    weights,
    positions,
    keys,
    first_key,
    distances,
    region: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
):
    """Add to near (M x C) the weights of each column but the last, to right (M) those of it."""
    half = distances // 2
    if region == NEAR:
        columns = tl.arange(0, C)
        key = positions[:, None] + columns[None, :] - half + 1 - first_key
        inside = (key >= 0) & (key < K) & (columns < distances - 2)[None, :]
        found = tl.gather(weights, tl.minimum(tl.maximum(key, 0), K - 1), 1)
        near += tl.where(inside, found, 0.0)
        # With L = 0 all keys are at one distance, that of the common row.
        beyond = (keys[None, :] - positions[:, None] >= half) & (half > 0)
        right += tl.sum(tl.where(beyond, weights, 0.0), 1)
    elif region == RIGHT:
        right += tl.sum(weights, 1)
    return near, right


@triton.jit
def kept_weights(seed, n, queries, first_key, threshold, M: tl.constexpr, K: tl.constexpr):
    """True for a weight that dropout keeps; one Philox call decides about four neighbours."""
    fours = first_key // 4 + tl.arange(0, K // 4)
    c0 = tl.zeros([M, K // 4], tl.int32) + fours[None, :]
    c1 = tl.zeros([M, K // 4], tl.int32) + queries[:, None]
    c2 = tl.zeros([M, K // 4], tl.int32) + n
    a, b, c, d = tl.philox(seed, c0, c1, c2, tl.zeros_like(c0), PHILOX_ROUNDS)
    drawn = tl.join(tl.join(a, c), tl.join(b, d)).reshape(M, K)
    return drawn.to(tl.int32, bitcast=True) >= threshold


@triton.jit
def tile_scores(
    q,
    k,
    terms,
    last,
    positions,
    keys,
    key_count,
    distances,
    factor,
    padding,
    causal: tl.constexpr,
    padded: tl.constexpr,
    region: tl.constexpr,
    precision: tl.constexpr,
    C: tl.constexpr,
):
    """The scores of a tile, M x K, to the base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision=precision)
    scores = add_relative(scores, terms, last, positions, keys, distances, region, C) * factor
    if padded:
        masked = tl.load(padding + keys, mask=keys < key_count, other=0)
        scores = tl.where((masked != 0)[None, :], PADDED, scores)
    hidden = (keys >= key_count)[None, :]
    if causal and region == NEAR:
        hidden = hidden | (keys[None, :] > positions[:, None])
    return tl.where(hidden, float("-inf"), scores)


@triton.jit
def forward_tiles(
    state,
    q,
    terms,
    last,
    positions,
    start,
    stop,
    key_base,
    key_stride,
    value_base,
    value_stride,
    padding,
    key_count,
    distances,
    factor,
    seed,
    n,
    queries,
    threshold,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    region: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Attend to the keys from start to stop, all of one region."""
    highest, total, used, output, near, right = state
    for first_key in range(start, stop, K):
        keys = first_key + tl.arange(0, K)
        k = load_rows(key_base, keys, key_stride, key_count, D)
        scores = tile_scores(
            *(q, k, terms, last, positions, keys, key_count, distances, factor, padding),
            *(causal, padded, region, precision, C),
        )
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])  # M x K
        highest = higher
        total = total * shrink + tl.sum(weights, 1)
        if dropout:
            kept = kept_weights(seed, n, queries, first_key, threshold, M, K)
            weights = tl.where(kept, weights, 0.0)
            used = used * shrink + tl.sum(weights, 1)
        if region != LEFT:
            near, right = sum_by_distance(
                *(near * shrink[:, None], right * shrink, weights, positions, keys),
                *(first_key, distances, region, K, C),
            )
        v = load_rows(value_base, keys, value_stride, key_count, D)
        output = output * shrink[:, None]
        output = tl.dot(weights.to(v.dtype), v, output, input_precision=precision)
    return highest, total, used, output, near, right


@triton.jit(do_not_specialize=["seed", "threshold", "keep_factor"])
def forward_kernel(
    query,
    key,
    value,
    relative_keys,
    relative_values,
    padding,
    output,
    log_sums,
    query_stride_n,
    query_stride_t,
    key_stride_n,
    key_stride_t,
    value_stride_n,
    value_stride_t,
    output_stride_n,
    output_stride_t,
    query_count,
    key_count,
    heads,
    distances,
    factor,
    seed,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Output (N x Q x D) and log-sum-exp (N x Q) of M queries of a sequence."""
    first = tl.program_id(0) * M
    n = tl.program_id(1)
    wide_n = n.to(tl.int64)
    half = distances // 2
    queries = first + tl.arange(0, M)
    positions = queries + key_count - query_count  # the queries are the last positions
    q = load_rows(query + wide_n * query_stride_n, queries, query_stride_t, query_count, D)
    table, last_row, _ = load_table(relative_keys, distances, q.dtype, C, D)
    terms = tl.dot(q, tl.trans(table), input_precision=precision)  # M x C
    last = tl.sum(q.to(tl.float32) * last_row[None, :], 1)
    start, near_start, near_stop, stop = key_ranges(
        first + key_count - query_count, half, key_count, causal, M, K
    )
    state = (
        tl.full([M], float("-inf"), tl.float32),
        tl.zeros([M], tl.float32),
        tl.zeros([M], tl.float32),
        tl.zeros([M, D], tl.float32),
        tl.zeros([M, C], tl.float32),
        tl.zeros([M], tl.float32),
    )
    key_base = key + wide_n * key_stride_n
    value_base = value + wide_n * value_stride_n
    pads = padding + (wide_n // heads) * key_count
    state = forward_tiles(
        *(state, q, terms, last, positions, start, near_start),
        *(key_base, key_stride_t, value_base, value_stride_t, pads),
        *(key_count, distances, factor, seed, n, queries, threshold),
        *(causal, padded, dropout, LEFT, precision, M, K, C, D),
    )
    state = forward_tiles(
        *(state, q, terms, last, positions, near_start, near_stop),
        *(key_base, key_stride_t, value_base, value_stride_t, pads),
        *(key_count, distances, factor, seed, n, queries, threshold),
        *(causal, padded, dropout, NEAR, precision, M, K, C, D),
    )
    if not causal:
        state = forward_tiles(
            *(state, q, terms, last, positions, near_stop, stop),
            *(key_base, key_stride_t, value_base, value_stride_t, pads),
            *(key_count, distances, factor, seed, n, queries, threshold),
            *(causal, padded, dropout, RIGHT, precision, M, K, C, D),
        )
    highest, total, used, result, near, right = state
    table, last_row, first_row = load_table(relative_values, distances, q.dtype, C, D)
    if not dropout:
        used = total
    result = tl.dot(near.to(q.dtype), table, result, input_precision=precision)
    result += right[:, None] * last_row[None, :] + used[:, None] * first_row[None, :]
    result = result * (keep_factor / total)[:, None]
    store_rows(output + wide_n * output_stride_n, queries, output_stride_t, query_count, result, D)
    logs = log_sums + wide_n * query_count + queries
    tl.store(logs, highest + tl.log2(total), mask=queries < query_count)


@triton.jit
def key_ranges(position, half, key_count, causal: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    """Where the keys of M queries begin, are near, are so no more, and end; in whole tiles."""
    stop = key_count
    if causal:
        stop = tl.minimum(stop, position + M)
    near_start = tl.maximum(position - half + 1, 0) // K * K
    near_stop = (position + M - 1 + half + K - 1) // K * K
    near_start = tl.minimum(near_start, (stop + K - 1) // K * K)
    near_stop = tl.maximum(near_start, tl.minimum(near_stop, (stop + K - 1) // K * K))
    return 0, near_start, near_stop, stop


@triton.jit
def tile_gradients(
    q,
    k,
    v,
    grad,
    terms,
    last,
    value_terms,
    value_last,
    value_first,
    log_sum,
    delta,
    positions,
    queries,
    keys,
    first_key,
    key_count,
    distances,
    factor,
    padding,
    seed,
    n,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    region: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
):
    """The weights that were used and the gradients of the scores, M x K both."""
    scores = tile_scores(
        *(q, k, terms, last, positions, keys, key_count, distances, factor, padding),
        *(causal, padded, region, precision, C),
    )
    weights = tl.exp2(scores - log_sum[:, None])
    grad_weights = tl.dot(grad, tl.trans(v), input_precision=precision) + value_first[:, None]
    grad_weights = add_relative(
        grad_weights, value_terms, value_last, positions, keys, distances, region, C
    )
    used = weights
    if dropout:
        kept = kept_weights(seed, n, queries, first_key, threshold, M, K)
        used = tl.where(kept, weights * keep_factor, 0.0)
        grad_weights = tl.where(kept, grad_weights * keep_factor, 0.0)
    # The gradient of a softmax; delta is the product of the output with its gradient.
    return used, weights * (grad_weights - delta[:, None])


@triton.jit
def table_terms(
    rows,
    table,
    last_row,
    region: tl.constexpr,
    table_first: tl.constexpr,
    precision: tl.constexpr,
):
    """Products of queries or gradients with a table (M x C, if near) and with its last row (M).

    Which factor comes first changes no number, only what the compiler keeps in registers.
    """
    last = tl.sum(rows.to(tl.float32) * last_row[None, :], 1)
    terms = last
    if region == NEAR:
        if table_first:
            terms = tl.trans(tl.dot(table, tl.trans(rows), input_precision=precision))
        else:
            terms = tl.dot(rows, tl.trans(table), input_precision=precision)
    return terms, last


@triton.jit
def query_gradient_tiles(
    state,
    q,
    grad,
    terms,
    last,
    value_terms,
    value_last,
    value_first,
    log_sum,
    delta,
    positions,
    queries,
    start,
    stop,
    key_base,
    key_stride,
    value_base,
    value_stride,
    padding,
    key_count,
    distances,
    factor,
    seed,
    n,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    region: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Add what the keys from start to stop, all of one region, contribute."""
    grad_query, near, right, near_mass, right_mass, used_mass = state
    for first_key in range(start, stop, K):
        keys = first_key + tl.arange(0, K)
        k = load_rows(key_base, keys, key_stride, key_count, D)
        v = load_rows(value_base, keys, value_stride, key_count, D)
        used, grad_scores = tile_gradients(
            *(q, k, v, grad, terms, last, value_terms, value_last, value_first, log_sum, delta),
            *(positions, queries, keys, first_key, key_count, distances, factor, padding),
            *(seed, n, threshold, keep_factor),
            *(causal, padded, dropout, region, precision, M, K, C),
        )
        grad_query = tl.dot(grad_scores.to(k.dtype), k, grad_query, input_precision=precision)
        near, right = sum_by_distance(
            near, right, grad_scores, positions, keys, first_key, distances, region, K, C
        )
        near_mass, right_mass = sum_by_distance(
            near_mass, right_mass, used, positions, keys, first_key, distances, region, K, C
        )
        used_mass += tl.sum(used, 1)
    return grad_query, near, right, near_mass, right_mass, used_mass


@triton.jit
def store_table_gradient(
    base,
    near,
    right,
    common,
    rows,
    distances,
    precision: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """The partial sum of a table's gradient: R x D from masses (M x C, M, M) and rows (M x D)."""
    columns = tl.arange(0, D)
    by_column = tl.dot(tl.trans(near.to(rows.dtype)), rows, input_precision=precision)  # C x D
    wide = rows.to(tl.float32)
    last_row = tl.sum(wide * right[:, None], 0)
    first_row = tl.sum(wide * common[:, None], 0)
    row = tl.arange(0, C)
    pointers = base + (row + 1)[:, None] * D + columns[None, :]
    tl.store(pointers, by_column, mask=(row < distances - 2)[:, None])
    if distances > 1:  # else the one row is that of all keys
        first_row -= tl.sum(by_column, 0) + last_row
        tl.store(base + (distances - 1) * D + columns, last_row)
    tl.store(base + columns, first_row)


@triton.jit(do_not_specialize=["seed", "threshold", "keep_factor"])
def query_gradient_kernel(
    query,
    key,
    value,
    relative_keys,
    relative_values,
    padding,
    output,
    log_sums,
    grad_output,
    grad_query,
    deltas,
    table_sums,
    query_stride_n,
    query_stride_t,
    key_stride_n,
    key_stride_t,
    value_stride_n,
    value_stride_t,
    output_stride_n,
    output_stride_t,
    grad_stride_n,
    grad_stride_t,
    query_count,
    key_count,
    heads,
    distances,
    scale,
    factor,
    seed,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Gradients of M queries, their products with the output, and their part of the tables'."""
    block = tl.program_id(0)
    n = tl.program_id(1)
    first = block * M
    wide_n = n.to(tl.int64)
    queries = first + tl.arange(0, M)
    positions = queries + key_count - query_count
    q = load_rows(query + wide_n * query_stride_n, queries, query_stride_t, query_count, D)
    grad = load_rows(grad_output + wide_n * grad_stride_n, queries, grad_stride_t, query_count, D)
    out = load_rows(output + wide_n * output_stride_n, queries, output_stride_t, query_count, D)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    exists = queries < query_count
    rows = wide_n * query_count + queries
    tl.store(deltas + rows, delta, mask=exists)
    # Queries that do not exist have no weights.
    log_sum = tl.load(log_sums + rows, mask=exists, other=float("inf"))
    value_table, value_last_row, value_first_row = load_table(
        relative_values, distances, q.dtype, C, D
    )
    value_first = tl.sum(grad.to(tl.float32) * value_first_row[None, :], 1)
    start, near_start, near_stop, stop = key_ranges(
        first + key_count - query_count, distances // 2, key_count, causal, M, K
    )
    state = (
        tl.zeros([M, D], tl.float32),
        tl.zeros([M, C], tl.float32),
        tl.zeros([M], tl.float32),
        tl.zeros([M, C], tl.float32),
        tl.zeros([M], tl.float32),
        tl.zeros([M], tl.float32),
    )
    key_base = key + wide_n * key_stride_n
    value_base = value + wide_n * value_stride_n
    pads = padding + (wide_n // heads) * key_count
    none = value_first  # keys far to the left have no terms of their own
    state = query_gradient_tiles(
        *(state, q, grad, none, none, none, none, value_first, log_sum, delta),
        *(positions, queries, start, near_start),
        *(key_base, key_stride_t, value_base, value_stride_t, pads),
        *(key_count, distances, factor, seed, n, threshold, keep_factor),
        *(causal, padded, dropout, LEFT, precision, M, K, C, D),
    )
    # Not before the first loop, so that no register holds the terms in it.
    key_table, key_last_row, _ = load_table(relative_keys, distances, q.dtype, C, D)
    terms, last = table_terms(q, key_table, key_last_row, NEAR, True, precision)
    value_terms, value_last = table_terms(grad, value_table, value_last_row, NEAR, True, precision)
    state = query_gradient_tiles(
        *(state, q, grad, terms, last, value_terms, value_last, value_first, log_sum, delta),
        *(positions, queries, near_start, near_stop),
        *(key_base, key_stride_t, value_base, value_stride_t, pads),
        *(key_count, distances, factor, seed, n, threshold, keep_factor),
        *(causal, padded, dropout, NEAR, precision, M, K, C, D),
    )
    if not causal:
        state = query_gradient_tiles(
            *(state, q, grad, terms, last, value_terms, value_last, value_first, log_sum, delta),
            *(positions, queries, near_stop, stop),
            *(key_base, key_stride_t, value_base, value_stride_t, pads),
            *(key_count, distances, factor, seed, n, threshold, keep_factor),
            *(causal, padded, dropout, RIGHT, precision, M, K, C, D),
        )
    result, near, right, near_mass, right_mass, used_mass = state
    result = tl.dot(near.to(q.dtype), key_table, result, input_precision=precision)
    result += right[:, None] * key_last_row[None, :]
    store_rows(
        *(grad_query + wide_n * query_stride_n, queries, query_stride_t, query_count),
        *(result * scale, D),
    )
    program = wide_n * tl.num_programs(0) + block
    sums = table_sums + program * 2 * distances * D
    # The gradients of a softmax's inputs add up to zero: nothing in common.
    nothing = tl.zeros([M], tl.float32)
    store_table_gradient(sums, near * scale, right * scale, nothing, q, distances, precision, C, D)
    store_table_gradient(
        *(sums + distances * D, near_mass, right_mass, used_mass),
        *(grad, distances, precision, C, D),
    )


@triton.jit
def key_gradient_tiles(
    state,
    k,
    v,
    keys,
    first_key,
    start,
    stop,
    query_base,
    query_stride,
    grad_base,
    grad_stride,
    tables,
    log_sums,
    deltas,
    padding,
    query_count,
    key_count,
    distances,
    factor,
    seed,
    n,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    region: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Add what the queries from start to stop, all of one region, contribute."""
    grad_key, grad_value = state
    key_table, key_last_row, value_table, value_last_row, value_first_row = tables
    for first in range(start, stop, M):
        queries = first + tl.arange(0, M)
        positions = queries + key_count - query_count
        exists = queries < query_count
        q = load_rows(query_base, queries, query_stride, query_count, D)
        grad = load_rows(grad_base, queries, grad_stride, query_count, D)
        log_sum = tl.load(log_sums + queries, mask=exists, other=float("inf"))
        delta = tl.load(deltas + queries, mask=exists, other=0.0)
        terms, last = table_terms(q, key_table, key_last_row, region, False, precision)
        value_terms, value_last = table_terms(
            grad, value_table, value_last_row, region, False, precision
        )
        value_first = tl.sum(grad.to(tl.float32) * value_first_row[None, :], 1)
        used, grad_scores = tile_gradients(
            *(q, k, v, grad, terms, last, value_terms, value_last, value_first, log_sum, delta),
            *(positions, queries, keys, first_key, key_count, distances, factor, padding),
            *(seed, n, threshold, keep_factor),
            *(causal, padded, dropout, region, precision, M, K, C),
        )
        grad_value = tl.dot(tl.trans(used.to(v.dtype)), grad, grad_value, input_precision=precision)
        grad_key = tl.dot(tl.trans(grad_scores.to(k.dtype)), q, grad_key, input_precision=precision)
    return grad_key, grad_value


@triton.jit(do_not_specialize=["seed", "threshold", "keep_factor"])
def key_gradient_kernel(
    query,
    key,
    value,
    relative_keys,
    relative_values,
    padding,
    log_sums,
    grad_output,
    deltas,
    grad_key,
    grad_value,
    query_stride_n,
    query_stride_t,
    key_stride_n,
    key_stride_t,
    value_stride_n,
    value_stride_t,
    grad_stride_n,
    grad_stride_t,
    query_count,
    key_count,
    heads,
    distances,
    scale,
    factor,
    seed,
    threshold,
    keep_factor,
    causal: tl.constexpr,
    padded: tl.constexpr,
    dropout: tl.constexpr,
    precision: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
):
    """Gradients of K keys and values of a sequence."""
    first_key = tl.program_id(0) * K
    n = tl.program_id(1)
    wide_n = n.to(tl.int64)
    keys = first_key + tl.arange(0, K)
    k = load_rows(key + wide_n * key_stride_n, keys, key_stride_t, key_count, D)
    v = load_rows(value + wide_n * value_stride_n, keys, value_stride_t, key_count, D)
    key_table, key_last_row, _ = load_table(relative_keys, distances, k.dtype, C, D)
    value_table, value_last_row, value_first_row = load_table(
        relative_values, distances, k.dtype, C, D
    )
    tables = (key_table, key_last_row, value_table, value_last_row, value_first_row)
    # Queries before these see the keys far to their right, queries after them far to their left.
    half = distances // 2
    query = query + wide_n * query_stride_n
    grad_output = grad_output + wide_n * grad_stride_n
    log_sums = log_sums + wide_n * query_count
    deltas = deltas + wide_n * query_count
    pads = padding + (wide_n // heads) * key_count
    earlier = key_count - query_count
    end = (query_count + M - 1) // M * M
    near_start = tl.minimum(tl.maximum(first_key - half + 1 - earlier, 0) // M * M, end)
    near_stop = (tl.maximum(first_key + K - 1 + half - earlier, 0) + M - 1) // M * M
    near_stop = tl.maximum(near_start, tl.minimum(near_stop, end))
    state = (tl.zeros([K, D], tl.float32), tl.zeros([K, D], tl.float32))
    if causal:
        near_start = tl.maximum(near_start, tl.maximum(first_key - earlier, 0) // M * M)
        near_start = tl.minimum(near_start, near_stop)
    else:
        state = key_gradient_tiles(
            *(state, k, v, keys, first_key, 0, near_start),
            *(query, query_stride_t, grad_output, grad_stride_t),
            *(tables, log_sums, deltas, pads),
            *(query_count, key_count, distances, factor, seed, n, threshold, keep_factor),
            *(causal, padded, dropout, RIGHT, precision, M, K, C, D),
        )
    state = key_gradient_tiles(
        *(state, k, v, keys, first_key, near_start, near_stop),
        *(query, query_stride_t, grad_output, grad_stride_t),
        *(tables, log_sums, deltas, pads),
        *(query_count, key_count, distances, factor, seed, n, threshold, keep_factor),
        *(causal, padded, dropout, NEAR, precision, M, K, C, D),
    )
    state = key_gradient_tiles(
        *(state, k, v, keys, first_key, near_stop, query_count),
        *(query, query_stride_t, grad_output, grad_stride_t),
        *(tables, log_sums, deltas, pads),
        *(query_count, key_count, distances, factor, seed, n, threshold, keep_factor),
        *(causal, padded, dropout, LEFT, precision, M, K, C, D),
    )
    result_key, result_value = state
    store_rows(
        *(grad_key + wide_n * key_stride_n, keys, key_stride_t, key_count, result_key * scale, D)
    )
    store_rows(
        *(grad_value + wide_n * value_stride_n, keys, value_stride_t, key_count, result_value, D)
    )
