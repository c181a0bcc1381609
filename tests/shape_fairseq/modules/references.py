"""RoPE, ALiBi and T5 bias word for word from their papers: one (query, key) pair at a time."""

import math

import torch
from torch import Tensor


def rope_score(query: Tensor, key: Tensor, i: int, j: int, base: float = 10000.0) -> Tensor:
    """Su et al., equations 14 to 16: R_i q · R_j k with a rotation for each pair of the width."""
    width = len(query)

    def turned(x: Tensor, position: int) -> list[Tensor]:
        result = []
        for pair in range(width // 2):
            angle = position * base ** (-2 * pair / width)
            first, second = x[2 * pair], x[2 * pair + 1]
            result.append(first * math.cos(angle) - second * math.sin(angle))
            result.append(first * math.sin(angle) + second * math.cos(angle))
        return result

    pairs = zip(turned(query, i), turned(key, j), strict=True)
    return sum(left * right for left, right in pairs) / math.sqrt(width)


def alibi_slopes(heads: int) -> list[float]:
    """Press et al., section 3 and the authors' get_slopes, which calls itself."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**head for head in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: heads - lower]


def t5_bucket(distance: int, buckets: int, max_distance: int, causal: bool) -> int:
    """Raffel et al., section 2.1, as in the function _relative_position_bucket of their code."""
    bucket, n = 0, -distance
    if not causal:
        buckets //= 2
        bucket += buckets if n < 0 else 0
        n = abs(n)
    else:
        n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return bucket + n
    large = exact + int(
        math.log(n / exact) / math.log(max_distance / exact) * (buckets - exact) + 1e-6
    )
    return bucket + min(large, buckets - 1)


def reference_attention(module, x: Tensor, blocked: Tensor, score) -> Tensor:
    """Self-attention of x (T x B x C); `score(head, query, key, i, j)` is the only difference.

    `blocked` (B x T x T) is true where query i must not see key j; nothing is computed for a query
    that sees nothing.
    """
    length, batch, width = x.shape
    heads, size = module.num_heads, width // module.num_heads
    q, k, v = (
        projection(x).view(length, batch, heads, size)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    rows = []
    for i in range(length):
        for b in range(batch):
            for head in range(heads):
                seen = [j for j in range(length) if not blocked[b, i, j]]
                if not seen:
                    rows.append(x.new_zeros(size))
                    continue
                scores = [score(head, q[i, b, head], k[j, b, head], i, j) for j in seen]
                weights = torch.stack(scores).softmax(0)
                terms = (w * v[j, b, head] for w, j in zip(weights, seen, strict=True))
                rows.append(sum(terms))
    return module.out_proj(torch.stack(rows).view(length, batch, width))
