"""RPE, RoPE, ALiBi, T5 bias: fairseq's model with another self-attention, and no positions."""

import pytest
import torch

from shape_fairseq.models.relative_positions import RelativePositionsModel
from shape_fairseq.modules.self_attention import DistanceSelfAttention

ARCHS = ("transformer_rpe", "transformer_rope", "transformer_alibi", "transformer_t5_bias")


def test_all_models_of_the_kind_are_tested_here():
    models = RelativePositionsModel.__subclasses__()
    assert {model.__module__.rpartition(".")[2] for model in models} == set(ARCHS)


@pytest.mark.parametrize("arch", ARCHS)
def test_it_stands_in_every_self_attention_and_in_no_other(build, arch):
    model = build(f"{arch}_tiny", "--encoder-layers", "2", "--decoder-layers", "3")
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert all(isinstance(layer.self_attn, DistanceSelfAttention) for layer in layers)
    assert [layer.self_attn.causal for layer in layers] == [False] * 2 + [True] * 3
    for layer in model.decoder.layers:
        assert not isinstance(layer.encoder_attn, DistanceSelfAttention)
    assert model.encoder.embed_positions is None and model.decoder.embed_positions is None
    assert not [key for key in model.state_dict() if "embed_positions" in key]


def test_what_is_learned_beyond_fairseqs_weights(build):
    def extra(arch: str) -> int:
        count = sum(p.numel() for p in build(f"{arch}_tiny").parameters())
        return count - sum(p.numel() for p in build("transformer_rope_tiny").parameters())

    assert extra("transformer_alibi") == 0
    assert extra("transformer_t5_bias") == 2 * 32 * 2  # a table a side: 32 buckets, 2 heads
    assert extra("transformer_rpe") == 4 * 2 * 33 * 32  # two tables a layer


def test_all_layers_of_a_side_have_one_table_of_t5_also_after_loading(build):
    model, other = build("transformer_t5_bias_tiny"), build("transformer_t5_bias_tiny", seed=2)
    other.load_state_dict(model.state_dict())
    for side in (other.half().encoder, other.decoder):
        assert len({layer.self_attn.distance_bias.table.data_ptr() for layer in side.layers}) == 1
    encoder, decoder = (side.layers[0].self_attn for side in (other.encoder, other.decoder))
    assert not encoder.distance_bias.table.equal(decoder.distance_bias.table)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_model_knows_distances_and_no_positions(build, batch, arch):
    """Padding on the left moves every absolute position and no distance."""
    model = build(f"{arch}_tiny").double()
    short = batch([6])
    padded = torch.cat([torch.full((1, 5), 1), short], dim=1)
    with torch.no_grad():
        plain = model.encoder(short, None)["encoder_out"][0]
        shifted = model.encoder(padded, None)["encoder_out"][0][5:]
        order = torch.tensor([1, 0, 2, 3, 4, 5])  # without positions the states would move along
        swapped = model.encoder(short[:, order], None)["encoder_out"][0][order]
    torch.testing.assert_close(plain, shifted, atol=1e-10, rtol=1e-10)
    assert not plain.allclose(swapped, atol=1e-3)


@pytest.mark.parametrize("arch", ARCHS)
def test_checkpointed_activations_give_the_same_gradients(build, batch, arch):
    tokens = batch([5, 8])
    gradients = []
    for options in ([], ["--checkpoint-activations"]):
        model = build(f"{arch}_tiny", "--dropout", "0", *options).double().train()
        model(tokens, None, tokens)[0].square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@pytest.mark.parametrize("arch", ARCHS)
def test_incremental_decoding_with_reordered_beams_equals_the_whole(build, batch, arch):
    model = build(f"{arch}_tiny").double()
    source, target = batch([8]).expand(3, -1), batch([9, 9, 9])  # three beams of one sentence
    order = torch.tensor([1, 1, 0])
    with torch.no_grad():
        states = model.encoder(source, torch.tensor([8, 8, 8]))
        state: dict = {}
        for step in range(4):
            model.decoder(target[:, : step + 1], states, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, order)
        target = torch.cat([target[order, :4], target[:, 4:]], dim=1)
        steps = [
            model.decoder(target[:, : step + 1], states, incremental_state=state)[0]
            for step in range(4, 9)
        ]
        whole = model.decoder(target, states)[0]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole[:, 4:], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("rope", ["--rotary-base", "0"], "--rotary-base must be a number of at least 1, got 0"),
        ("rope", ["--decoder-attention-heads", "64"], "RoPE needs heads of an even width"),
        ("rope", ["--encoder-learned-pos"], "drop --encoder-learned-pos for RoPE"),
        ("alibi", ["--cross-self-attention"], "drop --cross-self-attention for ALiBi"),
        ("t5_bias", ["--bias-buckets", "7"], "must be an even number from 4 on, got 7"),
        ("t5_bias", ["--bias-buckets", "x"], "must be an integer of at least 0, got x"),
        ("t5_bias", ["--bias-max-distance", "16"], "more than half of --bias-buckets, got 16"),
    ],
)
def test_wrong_options_are_one_clear_line(build, arch, options, message):
    with pytest.raises(SystemExit) as error:
        build(f"transformer_{arch}_tiny", *options)
    assert message in error.value.code
    assert "\n" not in error.value.code
