from itertools import combinations

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from shape_fairseq.modules.randomized_positions import (
    RandomizedSinusoidalPositionalEmbedding,
    ordered_subsets,
)

PAD, DIM = 1, 8


def embedding(position_range: int) -> RandomizedSinusoidalPositionalEmbedding:
    return RandomizedSinusoidalPositionalEmbedding(DIM, PAD, 10, position_range)


def test_every_subset_of_a_sequences_length_is_as_likely():
    lengths = torch.tensor([[2], [3]]).repeat(6000, 1)
    drawn = ordered_subsets(lengths, 3, 5, torch.Generator().manual_seed(1))
    for size, chosen in ((2, drawn[::2, :2]), (3, drawn[1::2])):
        expected = len(chosen) / 10  # 5 choose 2, 5 choose 3
        counts = [
            int((chosen == torch.tensor(subset)).all(dim=1).sum())
            for subset in combinations(range(5), size)
        ]
        assert sum(counts) == len(chosen)
        chi_square = sum((count - expected) ** 2 / expected for count in counts)
        assert chi_square < 27.9  # 0.1 % point with 9 degrees of freedom


@pytest.mark.parametrize("left_pad", [True, False])
def test_a_training_sequence_stands_at_ordered_positions_of_the_range(batch, left_pad):
    torch.manual_seed(2)
    module = embedding(40).train()
    tokens = batch([2, 6, 9], left_pad)
    vectors = module(tokens)
    assert vectors[tokens.eq(PAD)].abs().max() == 0
    table = SinusoidalPositionalEmbedding.get_embedding(42, DIM)[2:]  # fairseq's rows of 0 ... 39
    for row, real in zip(vectors, tokens.ne(PAD), strict=True):
        places = [int((table == vector).all(dim=1).nonzero()) for vector in row[real]]
        assert places == sorted(set(places)) and places[-1] < 40
    assert not module(tokens).equal(vectors)


def test_outside_training_and_without_room_it_is_fairseqs_own(batch):
    tokens = batch([2, 6, 9])
    stock = SinusoidalPositionalEmbedding(DIM, PAD, 10)
    assert embedding(40).eval()(tokens).equal(stock(tokens))
    for short in (0, 8):
        assert embedding(short).train()(tokens).equal(stock(tokens))
    full = batch([9, 9])
    assert embedding(9).train()(full).equal(stock(full))


def test_the_last_position_of_the_range_is_in_the_table():
    vectors = embedding(3000).train()(torch.full((1, 3000), 5))
    assert vectors.equal(SinusoidalPositionalEmbedding(DIM, PAD, 3002)(torch.full((1, 3000), 5)))
