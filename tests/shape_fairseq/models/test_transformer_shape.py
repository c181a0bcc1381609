import pytest


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


def test_fairseq_tells_both_sides_the_number_of_updates(build):
    model = build("transformer_shape_tiny", "--max-shift", "40", "--shift-warmup-updates", "100")
    # What fairseq's tasks call before each update.
    model.set_num_updates(50)
    for side in (model.encoder, model.decoder):
        assert side.embed_positions.largest_shift() == 20
