import pytest
import torch

from shape_fairseq.modules.relative_attention import RelativeMultiheadAttention

LAYERS = ["--encoder-layers", "2", "--decoder-layers", "3"]


def test_base_has_the_papers_61_million_parameters(build):
    # 32,000 merges give about 32,700 symbols; embeddings shared, as in the paper.
    model = build("transformer_rpe_wmt_en_de", vocabulary_size=32_768)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6) == 61


def test_one_pair_of_tables_a_layer_and_none_in_cross_attention(build):
    model = build("transformer_rpe", *LAYERS, "--max-relative-distance", "3")
    relative = [m for m in model.modules() if isinstance(m, RelativeMultiheadAttention)]
    assert len(relative) == 5
    assert {m.relative_keys.shape for m in relative} == {(7, 64)}
    assert {m.relative_values.shape for m in relative} == {(7, 64)}
    assert len({m.relative_keys.data_ptr() for m in relative}) == 5
    for layer in model.decoder.layers:
        assert not isinstance(layer.encoder_attn, RelativeMultiheadAttention)


def test_default_distance_of_the_paper(build):
    assert build("transformer_rpe_tiny").encoder.layers[0].self_attn.relative_keys.size(0) == 33


def test_relative_tables_change_what_a_reloaded_model_computes(build, batch):
    """fairseq 0.12.2's encoder fast path, taken after loading, would ignore the tables."""
    model, other = build("transformer_rpe_tiny"), build("transformer_rpe_tiny", seed=2)
    other.load_state_dict(model.state_dict())
    source = batch([5, 8])
    with torch.no_grad():
        before = other.encoder(source, None)["encoder_out"][0]
        torch.testing.assert_close(before, model.encoder(source, None)["encoder_out"][0])
        for layer in other.encoder.layers:
            layer.self_attn.relative_keys.mul_(-3)
            layer.self_attn.relative_values.add_(1)
        after = other.encoder(source, None)["encoder_out"][0]
    assert not before.allclose(after, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-relative-distance", "-4"], "must be an integer of at least 0, got -4"),
        (["--max-relative-distance", "1.5"], "must be an integer of at least 0, got 1.5"),
        (["--encoder-learned-pos"], "drop --encoder-learned-pos for RPE"),
        (["--cross-self-attention"], "drop --cross-self-attention for RPE"),
    ],
)
def test_wrong_options_are_one_clear_line(build, options, message):
    with pytest.raises(SystemExit) as error:
        build("transformer_rpe_tiny", *options)
    assert message in error.value.code
    assert "\n" not in error.value.code
