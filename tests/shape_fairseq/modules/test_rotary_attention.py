import pytest
import torch

from shape_fairseq.modules.rotary_attention import rotate, rotations
from tests.shape_fairseq.modules.references import rope_score


def test_a_score_is_that_of_the_paper_and_depends_on_the_distance_alone():
    torch.manual_seed(0)
    query, key = torch.randn(2, 8, dtype=torch.double)
    expected = rope_score(query, key, 5, 2) * 8**0.5

    def score(i: int, j: int) -> torch.Tensor:
        turned = rotations(torch.tensor([i, j]), 8, 10000.0, torch.double)
        return rotate(query[None], turned[:1])[0] @ rotate(key[None], turned[1:])[0]

    torch.testing.assert_close(score(5, 2), expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(score(1005, 1002), expected, atol=1e-10, rtol=1e-10)
    assert abs(score(5, 3) - expected) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_pairs_are_neighbours_and_keep_their_length(dtype):
    x = torch.randn(2, 3, 6).to(dtype)
    turned = rotate(x, rotations(torch.arange(3), 6, 10.0, torch.float64))
    assert turned.dtype == dtype and turned[:, 0].equal(x[:, 0])
    lengths = [y.double().unflatten(-1, (3, 2)).norm(dim=-1) for y in (x, turned)]
    torch.testing.assert_close(*lengths, atol=1e-2 if dtype == torch.float16 else 1e-6, rtol=0)
