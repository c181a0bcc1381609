"""What a checkpoint tells of its model, wherever its fairseq put that."""

from argparse import Namespace

import pytest
import torch

from shape_fairseq.errors import UserError
from shape_fairseq.files import sha256
from shape_fairseq.model_names import MODELS
from shape_fairseq.production.trained import Checkpoint, training_options


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_checkpoint_knows_which_model_it_holds(save_checkpoint, model):
    path = save_checkpoint(f"{model.architecture}_tiny")
    checkpoint = Checkpoint(path)
    assert checkpoint.model is model and checkpoint.arch == f"{model.architecture}_tiny"
    signature = checkpoint.signature()
    assert signature["checkpoint"] == sha256(path) and signature["updates"] == 3
    assert {"python", "torch"} <= signature["versions"].keys()


def test_options_in_all_of_fairseqs_places_are_found(save_checkpoint):
    path = save_checkpoint("transformer_shape_tiny", "--max-shift", "7")
    state = torch.load(path)
    options = state["cfg"]["model"]
    for args, cfg in ((None, {"model": vars(options)}), (options, None), (options, {})):
        torch.save({**state, "args": args, "cfg": cfg, "optimizer_history": None}, path)
        checkpoint = Checkpoint(path)
        assert checkpoint.arch == "transformer_shape_tiny" and checkpoint.options.max_shift == 7
        assert checkpoint.options.encoder_layers == options.encoder_layers
        assert checkpoint.signature()["updates"] is None
    # fairseq itself writes only the name since it has dataclasses.
    unnamed = {key: value for key, value in vars(options).items() if key != "arch"}
    torch.save({**state, "cfg": {"model": unnamed}}, path)
    assert Checkpoint(path).arch == "transformer_shape_tiny"


def test_the_options_are_a_copy():
    options = Namespace(arch="transformer", layers=2)
    training_options({"args": options}).layers = 5
    assert options.layers == 2
    with pytest.raises(UserError, match="lacks the options of its training: train it again"):
        training_options({"args": None, "cfg": {"task": {}}})


def refusal(path) -> str:
    """The one line that a file gets which is no checkpoint of a known model."""
    with pytest.raises(UserError, match=str(path)) as error:
        Checkpoint(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_other_files_are_no_checkpoints(save_checkpoint, tmp_path):
    path = save_checkpoint("transformer_tiny")
    state = torch.load(path)
    state["cfg"]["model"].arch = "lightconv"
    torch.save(state, path)
    assert "holds lightconv: only transformer, transformer_shape, " in refusal(path)
    del state["cfg"]["model"].arch, state["cfg"]["model"]._name
    torch.save(state, path)
    assert "holds an unnamed architecture" in refusal(path)
    torch.save({"weights": {}}, path)
    assert "no checkpoint of fairseq-train" in refusal(path)
    path.write_bytes(b"PK")
    assert "or it is damaged" in refusal(path)
    assert "missing" in refusal(tmp_path / "none.pt")
