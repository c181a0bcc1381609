"""Shaw et al. word for word, and masks, for the tests of relative attention."""

import torch


def reference_attention(query, key, value, relative_keys, relative_values, blocked):
    """Equations 3 and 4 of Shaw et al., word for word: one (query, key) pair at a time."""
    limit = len(relative_keys) // 2
    first = key.size(1) - query.size(1)
    output = []
    for n in range(query.size(0)):
        for i in range(query.size(1)):
            bins = [max(-limit, min(limit, j - (i + first))) + limit for j in range(key.size(1))]
            scores = torch.stack(
                [query[n, i] @ (key[n, j] + relative_keys[b]) for j, b in enumerate(bins)]
            )
            weights = scores.masked_fill(blocked[n, i], -torch.inf).softmax(0)
            values = [
                w * (value[n, j] + relative_values[b])
                for j, (w, b) in enumerate(zip(weights, bins, strict=True))
            ]
            output.append(torch.stack(values).sum(0))
    return torch.stack(output).view_as(query)


def padding_mask(lengths, keys, left):
    """True at padding, (batch, keys); every sequence has at least one real token."""
    positions = torch.arange(keys)
    lengths = torch.tensor(lengths)[:, None]
    return positions < keys - lengths if left else positions >= lengths


def causal_mask(length):
    return torch.full((length, length), -torch.inf, dtype=torch.double).triu(1)
