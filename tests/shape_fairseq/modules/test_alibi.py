import pytest
import torch

from shape_fairseq.modules.alibi import LinearBias, slopes
from tests.shape_fairseq.modules.references import alibi_slopes


@pytest.mark.parametrize("heads", range(1, 33))
def test_slopes_are_the_authors_for_any_number_of_heads(heads):
    assert slopes(heads) == pytest.approx(alibi_slopes(heads), rel=1e-12)
    assert len(slopes(heads)) == len(set(slopes(heads))) == heads


def test_slopes_of_the_paper():
    assert slopes(8) == [2.0**-n for n in range(1, 9)]


def test_the_bias_is_computed_once_for_all_layers_and_anew_for_another_length():
    bias = LinearBias(8)
    like = torch.zeros(1)
    first = bias(5, 5, like)
    assert bias(5, 5, like) is first
    assert first[0].tolist() == [[-0.5 * abs(i - j) for j in range(5)] for i in range(5)]
    assert bias(1, 5, like)[1].tolist() == [[-1.0, -0.75, -0.5, -0.25, 0.0]]
    assert bias(5, 5, like.half()).dtype == torch.float16
