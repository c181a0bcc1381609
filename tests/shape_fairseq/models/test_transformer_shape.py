import pytest
import torch

PAD = 1


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


def test_state_dict_is_that_of_the_stock_model(build):
    stock = build("transformer_wmt_en_de", "--encoder-layers", "1", "--decoder-layers", "1")
    shape = build("transformer_shape_wmt_en_de", "--encoder-layers", "1", "--decoder-layers", "1")
    assert list(stock.state_dict()) == list(shape.state_dict())
    stock.load_state_dict(shape.state_dict())
    shape.load_state_dict(stock.state_dict())


def test_without_shift_training_is_bit_for_bit_stock(build, batch):
    tokens = batch([5, 8, 3])
    stock, shape = build("transformer_tiny"), build("transformer_shape_tiny", "--max-shift", "0")
    assert losses_after_training(stock, tokens) == losses_after_training(shape, tokens)
    for ours, theirs in zip(shape.parameters(), stock.parameters(), strict=True):
        assert ours.equal(theirs)


def test_with_shift_training_differs_and_evaluation_does_not(build, batch):
    tokens = batch([5, 8, 3])
    stock, shape = build("transformer_tiny"), build("transformer_shape_tiny")
    with torch.no_grad():
        assert stock(tokens, None, tokens)[0].equal(shape(tokens, None, tokens)[0])
    assert losses_after_training(stock, tokens) != losses_after_training(shape, tokens)


def test_source_and_target_are_shifted_independently(build, batch, monkeypatch):
    from shape_fairseq.modules import positions

    drawn = []
    draw = positions.draw_offsets

    def spy(*args):
        drawn.append(draw(*args))
        return drawn[-1]

    monkeypatch.setattr(positions, "draw_offsets", spy)
    model = build("transformer_shape_tiny").train()
    tokens = batch([4] * 40)
    model(tokens, None, tokens)
    source, target = drawn
    assert not source.equal(target)
    assert source.shape == target.shape == (40, 1)


def test_defaults_of_the_paper(build):
    model = build("transformer_shape", "--encoder-layers", "1", "--decoder-layers", "1")
    assert model.encoder.embed_positions.max_shift == 500
    assert model.decoder.embed_positions.max_shift == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-shift", "-1"], "--max-shift must be an integer of at least 0, got -1"),
        (["--max-shift", "2.5"], "--max-shift must be an integer of at least 0, got 2.5"),
        (["--max-shift", "many"], "--max-shift must be an integer of at least 0, got many"),
        (["--encoder-learned-pos"], "drop --encoder-learned-pos"),
        (["--decoder-learned-pos"], "drop --decoder-learned-pos"),
        (["--no-token-positional-embeddings"], "drop --no-token-positional-embeddings"),
        (["--encoder-embed-dim", "33"], "--encoder-embed-dim is 33"),
    ],
)
def test_wrong_options_are_one_clear_line(build, options, message):
    with pytest.raises(SystemExit) as error:
        build("transformer_shape_tiny", *options)
    assert message in error.value.code
    assert "\n" not in error.value.code
