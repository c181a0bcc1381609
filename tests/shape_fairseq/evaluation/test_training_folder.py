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
    # The names of result files are made of these.
    for name, value in (("MODEL=shape", "MODEL=../x"), ("SETTING=interpolate", "SETTING=/x")):
        (save / "recipe.txt").write_text(RECIPE.replace(name, value))
        with pytest.raises(UserError, match=f"{name.partition('=')[0]} must be one of "):
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


def test_notes_that_are_no_text_are_named(save):
    for name, read in {
        "completed_updates.txt": training_folder.completed_updates,
        "hardware.txt": training_folder.read_hardware,
        "recipe.txt": read_recipe,
    }.items():
        (save / name).write_bytes(b"\xff\xfe4\n")
        with pytest.raises(UserError, match=f"{name} is damaged: it is no text in UTF-8"):
            read(save)


def test_the_shell_can_ask_for_the_name_of_the_result(save, commands):
    answer = commands.module("shape_fairseq.evaluation.training_folder", save)
    assert answer.stdout == "interpolate-shape-k40-seed3.json\n"


def test_the_average_is_named_after_its_last_checkpoint(save):
    for updates in (90, 5, 100):
        (save / f"checkpoint_1_{updates}.pt").touch()
    (save / "checkpoint_last.pt").touch()
    assert training_folder.average_path(save, 2) == save / "average-2-at-100.pt"
    with pytest.raises(UserError, match="has 3 checkpoints and 4"):
        training_folder.average_path(save, 4)
