"""What is served is what was trained, and what cannot be served is refused."""

import pytest
import torch

from shape_fairseq.errors import UserError
from shape_fairseq.model_names import MODELS
from shape_fairseq.production import export
from shape_fairseq.production.fairseq_model import stock_weights
from tests.shape_fairseq.conftest import vocabulary

PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
ARCHITECTURES = [f"{model.architecture}_tiny" for model in MODELS.values()]
STOCK = [f"transformer{name}_tiny" for name in ("", "_shape", "_cape", "_randomized")]
RELATIVE = sorted(set(ARCHITECTURES) - set(STOCK))


def refusal(*arguments: object) -> str:
    """The one line with which an export ends."""
    with pytest.raises(UserError) as error:
        export.main([str(argument) for argument in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


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
    message = refusal(path, "--to", "fairseq", output)
    assert "no relative positions" in message and "--to ctranslate2" in message
    assert not output.exists()


def test_bad_input_ends_in_one_line_and_writes_nothing(save_checkpoint, data_folder, tmp_path):
    path, output = save_checkpoint("transformer_tiny"), tmp_path / "out"
    to_ct2 = ("--to", "ctranslate2", output)
    assert "choose fairseq or ctranslate2" in refusal(path, "--to", "onnx", output)
    assert "unknown quantization 'int7'" in refusal(path, *to_ct2, "--quantization", "int7")
    assert "--beam" in refusal(path, *to_ct2, "--beam", 0)
    assert "missing" in refusal(tmp_path / "no.pt", *to_ct2)
    assert "give --data" in refusal(path, *to_ct2, "--data", tmp_path / "nowhere")
    (data_folder / "bpe" / "codes").rename(data_folder / "codes")
    assert "give --codes" in refusal(path, *to_ct2)
    codes = ("--codes", data_folder / "codes")
    assert "not fastBPE codes" in refusal(path, *to_ct2, "--codes", data_folder / "dict.txt")
    vocabulary(30).save(str(data_folder / "dict.txt"))
    assert "the dictionaries have 30 and 30" in refusal(path, *to_ct2, *codes)
    assert not output.exists() and not list(tmp_path.glob("*.partial"))


def test_other_files_are_no_checkpoints(save_checkpoint, tmp_path):
    path, output = save_checkpoint("transformer_tiny"), tmp_path / "out.pt"
    state = torch.load(path)
    state["cfg"]["model"].arch = "lightconv"
    torch.save(state, path)
    assert "holds lightconv" in refusal(path, "--to", "fairseq", output)
    torch.save({"weights": {}}, path)
    assert "no checkpoint of fairseq-train" in refusal(path, "--to", "fairseq", output)
    path.write_bytes(b"PK")
    assert "or it is damaged" in refusal(path, "--to", "fairseq", output)
    assert not output.exists()


def test_nothing_is_overwritten(save_checkpoint, tmp_path):
    output = tmp_path / "out"
    output.write_text("mine")
    for target in ("fairseq", "ctranslate2"):
        message = refusal(save_checkpoint("transformer_tiny"), "--to", target, output)
        assert "exists already" in message
    assert output.read_text() == "mine"
