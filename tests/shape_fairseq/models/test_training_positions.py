"""SHAPE, CAPE, randomized positions: a training batch's positions change, and nothing else."""

import pytest
import torch

from shape_fairseq.models.training_positions import TrainingPositionsModel
from shape_fairseq.modules.positions import TrainingPositionalEmbedding

PAD = 1
# Each model with the options that leave nothing to draw.
STILL = {
    "transformer_shape_tiny": ("--max-shift", "0"),
    "transformer_cape_tiny": (
        *("--max-global-shift", "0", "--max-local-shift", "0", "--max-global-scale", "1"),
    ),
    "transformer_randomized_tiny": ("--position-range", "0"),
}


def losses_after_training(model, tokens, steps=3):
    """A few plain SGD steps on copying; returns every loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    model.train()
    for step in range(steps):
        torch.manual_seed(step)
        logits, _ = model(tokens, tokens.ne(PAD).sum(1), tokens)
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_all_models_of_the_kind_are_tested_here():
    models = TrainingPositionsModel.__subclasses__()
    assert {f"{model.__module__.rpartition('.')[2]}_tiny" for model in models} == set(STILL)


@pytest.mark.parametrize("arch", STILL)
def test_state_dict_is_that_of_the_stock_model(build, arch):
    stock, ours = build("transformer_tiny"), build(arch)
    assert list(stock.state_dict()) == list(ours.state_dict())
    stock.load_state_dict(ours.state_dict())
    ours.load_state_dict(stock.state_dict())


@pytest.mark.parametrize("arch", STILL)
def test_without_draws_training_is_bit_for_bit_stock(build, batch, arch):
    tokens = batch([5, 8, 3])
    stock, ours = build("transformer_tiny"), build(arch, *STILL[arch])
    assert losses_after_training(stock, tokens) == losses_after_training(ours, tokens)
    for mine, theirs in zip(ours.parameters(), stock.parameters(), strict=True):
        assert mine.equal(theirs)


@pytest.mark.parametrize("arch", STILL)
def test_with_draws_training_differs_and_evaluation_does_not(build, batch, arch):
    tokens = batch([5, 8, 3])
    stock, ours = build("transformer_tiny"), build(arch)
    with torch.no_grad():
        assert stock(tokens, None, tokens)[0].equal(ours(tokens, None, tokens)[0])
    first, second = (losses_after_training(build(arch), tokens) for _ in range(2))
    assert first == second  # fairseq's seed of an update makes a resumed training the same
    assert losses_after_training(stock, tokens) != first


@pytest.mark.parametrize("arch", STILL)
def test_source_and_target_and_ranks_draw_independently(build, batch, arch, monkeypatch):
    model = build(arch).train()
    tokens = batch([9] * 40)

    def vectors(rank: int) -> list[torch.Tensor]:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        torch.manual_seed(5)
        return [side.embed_positions(tokens) for side in (model.encoder, model.decoder)]

    drawn = [*vectors(0), *vectors(1)]
    for index, first in enumerate(drawn):
        assert not any(first.equal(second) for second in drawn[index + 1 :])
    assert all(torch.equal(*pair) for pair in zip(drawn[:2], vectors(0), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("arch", STILL)
def test_activation_checkpoints_give_the_same_gradients(build, batch, arch):
    tokens = batch([5, 8])
    gradients = []
    for options in ([], ["--checkpoint-activations"]):
        model = build(arch, "--dropout", "0", *options).double().train()
        torch.manual_seed(1)
        model(tokens, None, tokens)[0].square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_a_shift_alone_leaves_the_distances_of_cape_and_shape_as_they_are(build, batch):
    """Sinusoids turn by one and the same angle: inner products of two vectors do not change."""
    tokens = batch([9] * 4)
    stock = build("transformer_tiny").double().encoder.embed_positions(tokens)
    only_shift = ("--max-local-shift", "0", "--max-global-scale", "1")
    model = build("transformer_cape_tiny", "--max-global-shift", "50", *only_shift).double()
    shifted = model.train().encoder.embed_positions(tokens)
    assert not shifted.allclose(stock, atol=0.1)
    products = [vectors.double() @ vectors.double().transpose(1, 2) for vectors in (stock, shifted)]
    torch.testing.assert_close(*products, atol=1e-5, rtol=0)  # fairseq's table has fp32's digits
    assert isinstance(model.encoder.embed_positions, TrainingPositionalEmbedding)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("cape", ["--max-global-shift", "-1"], "must be a number of at least 0, got -1"),
        ("cape", ["--max-local-shift", "nan"], "must be a number of at least 0, got nan"),
        ("cape", ["--max-global-scale", "0.9"], "must be a number of at least 1, got 0.9"),
        ("cape", ["--max-global-scale", "big"], "must be a number of at least 1, got big"),
        ("cape", ["--encoder-learned-pos"], "drop --encoder-learned-pos"),
        ("randomized", ["--position-range", "1.5"], "must be an integer of at least 0, got 1.5"),
        ("randomized", ["--no-token-positional-embeddings"], "drop --no-token-positional"),
        ("randomized", ["--decoder-embed-dim", "33"], "--decoder-embed-dim is 33"),
    ],
)
def test_wrong_options_are_one_clear_line(build, arch, options, message):
    with pytest.raises(SystemExit) as error:
        build(f"transformer_{arch}_tiny", *options)
    assert message in error.value.code
    assert "\n" not in error.value.code
