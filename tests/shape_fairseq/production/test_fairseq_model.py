"""What is served is what was trained: a checkpoint of fairseq's own transformer."""

import pytest
import torch

from shape_fairseq.errors import UserError
from shape_fairseq.model_names import MODELS
from shape_fairseq.production import export
from shape_fairseq.production.fairseq_model import stock_weights

ARCHITECTURES = [f"{model.architecture}_tiny" for model in MODELS.values()]
STOCK = [f"transformer{name}_tiny" for name in ("", "_shape", "_cape", "_randomized")]
RELATIVE = sorted(set(ARCHITECTURES) - set(STOCK))


@pytest.mark.parametrize("arch", STOCK)
def test_stock_export_is_plain_data_and_loads_into_fairseqs_own_model(
    save_checkpoint, build, batch, tmp_path, arch
):
    path, output = save_checkpoint(arch), tmp_path / "stock.pt"
    export.main([str(path), "--to", "fairseq", str(output)])
    state = torch.load(output, weights_only=True)  # no class but tensors, no list of allowed ones
    options = state["cfg"]["model"]
    assert options["arch"] == options["_name"] == "transformer_tiny"
    added = {name for model in MODELS.values() for name in model.options}
    assert not added & {f"--{name.replace('_', '-')}" for name in options}
    assert options["user_dir"] is None
    assert state["cfg"]["common"]["user_dir"] is None
    stock = build("transformer_tiny", seed=2)
    stock.load_state_dict(state["model"], strict=True)
    tokens, lengths = batch([5, 9], left_pad=True), torch.tensor([5, 9])
    inputs = (tokens, lengths, batch([4, 7]))
    with torch.no_grad():
        assert torch.equal(stock(*inputs)[0], build(arch)(*inputs)[0])


def test_options_in_all_of_fairseqs_places_are_found(save_checkpoint, tmp_path):
    path = save_checkpoint("transformer_shape_tiny")
    state = torch.load(path)
    options = state["cfg"]["model"]
    layouts = {"hydra": (None, {"model": vars(options)}), "old": (options, None)}
    for name, (args, cfg) in layouts.items():
        torch.save({**state, "args": args, "cfg": cfg}, path)
        export.main([str(path), "--to", "fairseq", str(tmp_path / f"{name}.pt")])
        exported = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert exported["cfg"]["model"]["arch"] == "transformer_tiny"
        assert exported["cfg"]["model"]["encoder_layers"] == options.encoder_layers


def test_what_a_fairseq_version_makes_for_itself_is_left_out():
    mine = {"encoder.layers.0.fc1.weight": 1, "decoder.embed_tokens.weight": 2}
    versions = {
        "encoder.layers.0.in_proj_weight": 3,
        "encoder.layers.0.fc1_bias": 4,
        "encoder.embed_positions._float_tensor": 5,
    }
    assert stock_weights(mine | versions) == mine


@pytest.mark.parametrize("arch", RELATIVE)
def test_a_relative_model_is_no_stock_transformer(save_checkpoint, tmp_path, arch):
    path, output = save_checkpoint(arch), tmp_path / "out.pt"
    with pytest.raises(UserError, match="no relative positions; use --to ctranslate2") as error:
        export.main([str(path), "--to", "fairseq", str(output)])
    assert "\n" not in str(error.value)
    assert not output.exists()
