from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from shape_fairseq.model_names import MODELS
from shape_fairseq.models.architectures import SIZES

ARCHITECTURES = [model.architecture for name, model in MODELS.items() if name != "ape"]
SMALL = ["--encoder-layers", "1", "--decoder-layers", "1"]


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_every_size_is_registered(model):
    assert {arch for arch in ARCH_MODEL_REGISTRY if arch.startswith(model)} == {
        f"{model}{size}" for size in ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")
    }


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_fairseqs_own(build, size):
    stock = build(f"transformer{size}", *SMALL)
    for model in ARCHITECTURES:
        ours = dict(build(f"{model}{size}", *SMALL).named_parameters())
        theirs = {n: p for n, p in stock.named_parameters() if p.requires_grad}
        assert {n: ours[n].shape for n in theirs} == {n: p.shape for n, p in theirs.items()}


@pytest.mark.parametrize("value", [-1, 1.5, "abc", None, [1], float("nan"), float("inf")])
def test_a_wrong_value_of_a_checkpoint_is_a_value_error(value):
    with pytest.raises(ValueError, match="--max-shift must be an integer of at least 0, got"):
        ARCH_CONFIG_REGISTRY["transformer_shape_tiny"](Namespace(max_shift=value))
