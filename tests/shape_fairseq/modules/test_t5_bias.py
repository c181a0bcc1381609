import pytest
import torch

from shape_fairseq.modules.t5_bias import BucketedBias, bucket
from tests.shape_fairseq.modules.references import t5_bucket


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 6), (4, 3), (10, 50)])
def test_buckets_are_those_of_the_authors_code(buckets, max_distance, causal):
    distances = torch.arange(-300, 301)
    ours = bucket(distances, buckets, max_distance, causal).tolist()
    assert ours == [t5_bucket(d, buckets, max_distance, causal) for d in distances.tolist()]
    assert max(ours) < buckets


def test_buckets_of_the_paper():
    """32 buckets: single distances up to 7 (decoder: 15), then logarithmic, one beyond 128."""
    distances = torch.tensor([0, -7, -8, -11, -12, -127, -128, -999, 1, 999])
    two_sided = bucket(distances, 32, 128, causal=False)
    assert two_sided.tolist() == [0, 7, 8, 8, 9, 15, 15, 15, 17, 31]
    past = bucket(torch.tensor([0, -15, -16, -128, -999, 5]), 32, 128, causal=True)
    assert past.tolist() == [0, 15, 16, 31, 31, 0]


def test_the_bias_is_learned():
    bias = BucketedBias(2, 8, 6, causal=False, width=16)
    bias(3, 5, bias.table).sum().backward()
    assert bias.table.grad.sum() == 2 * 3 * 5


def test_a_kept_bias_is_computed_anew_when_something_was_learned():
    bias = BucketedBias(2, 8, 6, causal=False, width=16)
    with torch.no_grad():
        first = bias(3, 5, bias.table)
        assert bias(3, 5, bias.table) is first
        bias.table.data.add_(1)  # as fairseq's optimizers do: torch counts no new version
        assert bias(3, 5, bias.table).equal(first + 1)
