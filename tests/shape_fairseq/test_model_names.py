import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.model_names import MODELS, key_of, model_named, variable_of


def test_every_model_is_found_by_its_name():
    assert [model_named(name).name for name in MODELS] == list(MODELS)
    assert model_named("shape").options["--max-shift"] == 500  # the paper's K
    assert model_named("ape").architecture == "transformer"  # fairseq's own, untouched


def test_no_two_models_are_mixed_up():
    """Options become variables of recipes and keys of files that hold all models."""
    for names in (
        [model.title.lower() for model in MODELS.values()],
        [model.architecture for model in MODELS.values()],
        [variable_of(option) for model in MODELS.values() for option in model.options],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["", "APE", "shap", "transformer_shape"])
def test_another_name_is_one_line_with_all_names(name):
    with pytest.raises(UserError) as error:
        model_named(name)
    assert str(error.value) == (
        f"unknown model '{name}': choose ape, shape, cape, randomized, rpe, rope, alibi or t5_bias"
    )


def test_an_option_has_one_name_in_files_and_one_in_the_environment():
    assert key_of("--shift-warmup-updates") == "shift_warmup_updates"
    assert variable_of("--shift-warmup-updates") == "SHIFT_WARMUP_UPDATES"
