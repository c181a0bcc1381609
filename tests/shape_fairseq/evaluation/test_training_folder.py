import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import training_folder
from shape_fairseq.evaluation.training_folder import read_recipe

RECIPE = """SETTING=interpolate
MODEL=shape
ARCH_SIZE=tiny
SEED=3
MAX_SHIFT=40
BATCH_TOKENS=1000
DATA_HASH=0123456789abcdef
EXTRA=--dropout 0 --adam-betas=(0.9,0.98)
"""


@pytest.fixture
def save(tmp_path):
    (tmp_path / "recipe.txt").write_text(RECIPE)
    return tmp_path


def test_a_recipe_is_read_with_its_types(save):
    recipe = read_recipe(save)
    assert (recipe.setting, recipe.model, recipe.size) == ("interpolate", "shape", "tiny")
    assert (recipe.seed, recipe.max_shift) == (3, 40)
    assert recipe.values["EXTRA"] == "--dropout 0 --adam-betas=(0.9,0.98)"
    assert recipe.result_name == "interpolate-shape-k40-seed3.json"
    # Files from before a field was added are read, models without a K have none.
    old = RECIPE.replace("MAX_SHIFT=40", "MAX_SHIFT=").replace("BATCH_TOKENS=1000\n", "")
    (save / "recipe.txt").write_text(old)
    assert read_recipe(save).max_shift is None


def test_a_recipe_that_lacks_a_field_is_refused(save):
    for name in training_folder.REQUIRED:
        (save / "recipe.txt").write_text(RECIPE.replace(f"{name}=", "OTHER="))
        with pytest.raises(UserError, match=rf"recipe\.txt lacks {name}"):
            read_recipe(save)
    (save / "recipe.txt").write_text(RECIPE.replace("SEED=3", "SEED=BASH_VERSINFO[0]"))
    with pytest.raises(UserError, match="SEED must be a whole number"):
        read_recipe(save)
    (save / "recipe.txt").unlink()
    with pytest.raises(UserError, match="no folder of a recipe"):
        read_recipe(save)


def test_updates_are_a_number_or_none(save):
    assert training_folder.completed_updates(save) is None
    path = save / "completed_updates.txt"
    path.write_text("1200\n")
    assert training_folder.completed_updates(save) == 1200
    path.write_text("BASH_VERSINFO[$(touch x)]\n")
    with pytest.raises(UserError, match="holds no number"):
        training_folder.completed_updates(save)


def test_the_shell_can_ask(save, commands):
    def ask(*arguments):
        return commands.module("shape_fairseq.evaluation.training_folder", *arguments)

    assert ask("result", save).stdout == "interpolate-shape-k40-seed3.json\n"
    assert ask("search").stdout == "--beam 4 --lenpen 0.6 --max-len-a 2 --max-len-b 50\n"
    for updates in (90, 5, 100):
        (save / f"checkpoint_1_{updates}.pt").touch()
    (save / "checkpoint_last.pt").touch()
    assert ask("average", save, 2).stdout == f"{save}/average-2-at-100.pt\n"
    refused = ask("average", save, 4)
    assert refused.returncode == 1 and "has 3 checkpoints and 4" in refused.stderr
