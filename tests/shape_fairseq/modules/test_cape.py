import math

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from shape_fairseq.modules.cape import CAPESinusoidalPositionalEmbedding, augmented_positions
from shape_fairseq.modules.positions import sinusoids

PAD, DIM = 1, 8
MAXIMA = (5.0, 0.5, 1.5)


def embedding(*maxima: float) -> CAPESinusoidalPositionalEmbedding:
    return CAPESinusoidalPositionalEmbedding(DIM, PAD, 20, *maxima)


def draw(positions, seed=1, maxima=MAXIMA):
    return augmented_positions(positions, *maxima, torch.Generator().manual_seed(seed))


def test_vectors_are_fairseqs_at_whole_positions_and_the_formula_between():
    table = SinusoidalPositionalEmbedding.get_embedding(50, DIM)
    assert sinusoids(torch.arange(50.0), DIM).equal(table)
    (vector,) = sinusoids(torch.tensor([2.25], dtype=torch.double), DIM)
    frequencies = [10000 ** (-i / (DIM // 2 - 1)) for i in range(DIM // 2)]
    expected = [math.sin(2.25 * f) for f in frequencies] + [math.cos(2.25 * f) for f in frequencies]
    torch.testing.assert_close(vector, torch.tensor(expected).double(), atol=1e-7, rtol=0)
    assert vector.tolist() == pytest.approx(expected, abs=1e-10)


def test_positions_are_shifted_jittered_and_scaled_as_in_the_paper():
    positions = torch.arange(30, dtype=torch.double).expand(4000, -1)
    drawn = draw(positions)
    # A line through a sequence's positions has the scale as its slope; what is left is jitter.
    centred = positions[0] - positions[0].mean()
    scale = (drawn * centred).sum(1, keepdim=True) / centred.square().sum()
    shift = drawn.mean(1, keepdim=True) / scale - positions[0].mean()
    jitter = drawn / scale - positions - shift
    assert 1.49 < scale.max() < 1.55 and 1 / 1.55 < scale.min() < 1 / 1.49
    assert scale.log().mean().abs() < 0.02
    assert 4.8 < shift.max() < 5.6 and -5.6 < shift.min() < -4.8 and shift.mean().abs() < 0.2
    assert shift.std() == pytest.approx(5 / math.sqrt(3), rel=0.05)
    assert 0.45 < jitter.abs().max() < 0.8
    assert jitter.std() == pytest.approx(0.5 / math.sqrt(3), rel=0.05)


def test_each_draw_alone_can_be_switched_off():
    positions = torch.arange(6, dtype=torch.double).expand(3, -1)
    shifted = draw(positions, maxima=(5.0, 0.0, 1.0))
    assert (shifted - positions).std(dim=1).max() < 1e-12 and shifted[:, 0].std() > 0.1
    assert draw(positions, maxima=(0.0, 0.0, 1.0)).equal(positions)
    scaled = draw(positions, maxima=(0.0, 0.0, 2.0))
    assert scaled[:, 0].abs().max() == 0 and scaled[:, 1].std() > 0.01


@pytest.mark.parametrize("left_pad", [True, False])
def test_a_training_batch_has_the_vectors_of_its_drawn_positions(batch, left_pad):
    """Written from the paper: (p + shift + local shift) * scale, sines and cosines, no padding."""
    module = embedding(*MAXIMA).double().train()
    tokens = batch([2, 6, 9], left_pad)
    torch.manual_seed(3)
    vectors = module(tokens)
    assert vectors[tokens.eq(PAD)].abs().max() == 0
    torch.manual_seed(3)
    seed = int(torch.randint(2**31, ()))
    generator = torch.Generator().manual_seed(seed)
    uniform = [
        2 * torch.rand(shape, generator=generator, dtype=torch.double) - 1
        for shape in ((3, 1), (3, 9), (3, 1))
    ]
    for row in range(3):
        for rank, column in enumerate(tokens[row].ne(PAD).nonzero().flatten().tolist()):
            place = rank + 5 * uniform[0][row, 0] + 0.5 * uniform[1][row, column]
            place = place * 1.5 ** uniform[2][row, 0] + PAD + 1  # fairseq's first is PAD + 1
            angles = [place * 10000 ** (-i / (DIM // 2 - 1)) for i in range(DIM // 2)]
            expected = torch.stack([a.sin() for a in angles] + [a.cos() for a in angles])
            torch.testing.assert_close(vectors[row, column], expected, atol=1e-10, rtol=0)


def test_outside_training_and_without_maxima_it_is_fairseqs_own(batch):
    tokens = batch([2, 6, 9])
    stock = SinusoidalPositionalEmbedding(DIM, PAD, 20)
    assert embedding(*MAXIMA).eval()(tokens).equal(stock(tokens))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert embedding(0.0, 0.0, 1.0).train()(tokens).equal(stock(tokens))
    assert torch.get_rng_state().equal(before)  # dropout is as in a stock training


def test_in_half_precision_far_neighbours_stay_apart():
    module = embedding(5.0, 0.0, 1.0).half().train()
    vectors = module(torch.full((1, 3000), 5))
    assert vectors.dtype == torch.float16
    assert (vectors[0, 1:] - vectors[0, :-1]).abs().amax(dim=1).min() > 0.1
