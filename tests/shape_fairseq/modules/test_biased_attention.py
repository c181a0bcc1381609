import pytest
import torch

from shape_fairseq.modules.biased_attention import spread_over_keys


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (2, 2), (3, 5), (5, 5)])
def test_each_pair_gets_the_term_of_its_distance(queries, keys):
    terms = torch.randn(2, queries + keys - 1, dtype=torch.double, requires_grad=True)
    spread = spread_over_keys(terms, queries, keys)
    expected = torch.stack(
        [
            torch.stack([terms[:, j - (i + keys - queries) + keys - 1] for j in range(keys)], 1)
            for i in range(queries)
        ],
        dim=1,
    )
    assert spread.equal(expected)
    upstream = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((x * upstream).sum(), terms)[0] for x in (spread, expected))
    torch.testing.assert_close(ours, theirs)
