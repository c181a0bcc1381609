import math

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from shape_fairseq.compat import sinusoidal_table
from shape_fairseq.modules.positions import (
    ShiftedSinusoidalPositionalEmbedding,
    draw_offsets,
    position_offset,
)

CPU = torch.device("cpu")
PAD = 1


def embedding(max_shift=0, offset=0, dim=16, init_size=8):
    module = ShiftedSinusoidalPositionalEmbedding(dim, PAD, init_size, max_shift)
    module.offset = offset
    return module


def stock_vectors(length, dim=16):
    """Rows of fairseq's own table: index k holds the vector of position k."""
    return SinusoidalPositionalEmbedding.get_embedding(length + 2, dim, PAD)[2:]


def offsets_of(module, tokens):
    """The offset of each sequence, read off the vectors that came out."""
    vectors = module(tokens)
    table = stock_vectors(2 * tokens.size(1) + module.max_shift)
    first = tokens.ne(PAD).int().argmax(dim=1)
    return torch.stack(
        [
            (table == row[start]).all(dim=1).nonzero()[0, 0]
            for row, start in zip(vectors, first, strict=True)
        ]
    )


def test_offsets_are_uniform_and_include_both_ends():
    torch.manual_seed(0)
    draws = torch.cat([draw_offsets(1000, 4, CPU) for _ in range(20)])
    counts = draws.flatten().bincount(minlength=5)
    assert counts.numel() == 5
    expected = draws.numel() / 5
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 18.5  # 0.1 % point with 4 degrees of freedom


def test_offsets_repeat_with_the_seed_and_change_with_every_draw():
    torch.manual_seed(7)
    first, second = draw_offsets(50, 500, CPU), draw_offsets(50, 500, CPU)
    torch.manual_seed(7)
    assert draw_offsets(50, 500, CPU).equal(first)
    assert not first.equal(second)


def test_ranks_draw_independently_from_the_same_seed(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    draws = {}
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        torch.manual_seed(3)
        draws[rank] = torch.cat([draw_offsets(10, 500, CPU) for _ in range(100)]).double()
        draws[rank, "next"] = torch.rand(1)
    ranks = torch.stack([draws[rank].flatten() for rank in range(4)])
    correlation = torch.corrcoef(ranks) - torch.eye(4)
    assert correlation.abs().max() < 4 / math.sqrt(1000)
    # Dropout and layer drop, which use torch's own generator, stay in step.
    assert len({float(draws[rank, "next"]) for rank in range(4)}) == 1


def test_every_training_call_shifts_each_sequence_anew():
    torch.manual_seed(1)
    module = embedding(max_shift=500).train()
    tokens = torch.full((20, 3), 5)
    first, second = offsets_of(module, tokens), offsets_of(module, tokens)
    assert first.unique().numel() > 10
    assert not first.equal(second)
    assert int(torch.stack([first, second]).max()) <= 500


@pytest.mark.parametrize("left_pad", [True, False])
def test_positions_advance_by_one_and_padding_stays_zero(batch, left_pad):
    torch.manual_seed(2)
    module = embedding(max_shift=30).train()
    tokens = batch([2, 6, 9], left_pad)
    vectors = module(tokens)
    assert vectors[tokens.eq(PAD)].abs().max() == 0
    table = stock_vectors(60)
    for row, real in zip(vectors, tokens.ne(PAD), strict=True):
        row = row[real]
        start = int((table == row[0]).all(dim=1).nonzero()[0, 0])
        assert row.equal(table[start : start + len(row)])


@pytest.mark.parametrize("training", [True, False])
def test_without_shift_it_is_fairseqs_own(batch, training):
    tokens = batch([2, 6, 9], left_pad=True)
    ours = embedding(max_shift=0).train(training)
    stock = SinusoidalPositionalEmbedding(16, PAD, 8)
    assert ours(tokens).equal(stock(tokens))


def test_evaluation_is_not_shifted(batch):
    tokens = batch([2, 6, 9])
    stock = SinusoidalPositionalEmbedding(16, PAD, 8)
    assert embedding(max_shift=500).eval()(tokens).equal(stock(tokens))


@pytest.mark.parametrize("length", [1, 7, 3000])
def test_the_table_grows_with_length_and_shift(length):
    module = embedding(max_shift=0, offset=0, init_size=4)
    module.max_shift = 1000  # set later than the table was made
    tokens = torch.full((64, length), 5)
    assert module.train()(tokens).shape == (64, length, 16)
    assert module.weights.size(0) >= length + 1000


def test_fixed_offset_moves_real_tokens_only(batch):
    tokens = batch([3, 5], left_pad=True)
    vectors = embedding(offset=100).eval()(tokens)
    assert vectors[0, :2].abs().max() == 0
    assert vectors[0, 2:].equal(stock_vectors(200)[100:103])
    assert vectors[1].equal(stock_vectors(200)[100:105])


def test_half_precision_follows_the_module(batch):
    tokens = batch([3, 5])
    module = embedding(max_shift=600).half()
    assert module.train()(tokens).dtype == torch.float16
    assert module.eval()(tokens).dtype == torch.float16
    assert sinusoidal_table(module, 5000).dtype == torch.float16


@pytest.mark.parametrize("arch", ["transformer_tiny", "transformer_shape_tiny"])
def test_position_offset_reaches_encoder_and_decoder(build, batch, arch):
    model = build(arch)
    source, target = batch([5, 8], left_pad=True), batch([6, 4])
    lengths = torch.tensor([5, 8])

    def forward():
        states = model.encoder(source, lengths)
        return states["encoder_out"][0], model.decoder(target, states)[0]

    with torch.no_grad():
        encoded, decoded = forward()
        with position_offset(model, encoder=100):
            shifted_encoded, _ = forward()
        with position_offset(model, decoder=100):
            unshifted_encoded, shifted_decoded = forward()
        with position_offset(model):
            same_encoded, same_decoded = forward()
        after = forward()
    assert not shifted_encoded.allclose(encoded)
    assert unshifted_encoded.equal(encoded)
    assert not shifted_decoded.allclose(decoded)
    assert same_encoded.equal(encoded) and same_decoded.equal(decoded)
    assert after[0].equal(encoded) and after[1].equal(decoded)


@pytest.mark.parametrize("arch", ["transformer_tiny", "transformer_shape_tiny"])
def test_incremental_decoding_honours_the_offset(build, batch, arch):
    model = build(arch)
    source, target = batch([5, 8], left_pad=True), batch([6, 6])
    with torch.no_grad(), position_offset(model, encoder=10, decoder=250):
        states = model.encoder(source, torch.tensor([5, 8]))
        whole = model.decoder(target, states)[0]
        state: dict = {}
        steps = [
            model.decoder(target[:, : n + 1], states, incremental_state=state)[0] for n in range(6)
        ]
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_a_model_without_sinusoidal_positions_is_refused(build):
    model = build("transformer_rpe_tiny")
    with (
        pytest.raises(ValueError, match="no sinusoidal positions"),
        position_offset(model, encoder=1),
    ):
        pass


def test_the_largest_offset_grows_over_the_first_updates():
    module = ShiftedSinusoidalPositionalEmbedding(16, PAD, 8, max_shift=40, warmup_updates=100)
    module.train()
    tokens = torch.full((400, 3), 5)
    largest = {}
    for update in (0, 1, 50, 99, 100, 5000):
        torch.manual_seed(update)
        module.set_num_updates(update)
        largest[update] = int(offsets_of(module, tokens).max())
    assert largest == {0: 0, 1: 0, 50: 20, 99: 39, 100: 40, 5000: 40}
