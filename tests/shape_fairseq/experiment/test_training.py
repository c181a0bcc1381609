"""What a training remembers of itself; the trainings themselves are in tests/recipes."""

import shlex
import sys

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.training import Command, Training, adaptation
from shape_fairseq.experiment.variables import Variables
from shape_fairseq.model_names import model_named

LITERAL = shlex.split(
    "fairseq-train data/vanilla --user-dir shape_fairseq --source-lang en --target-lang de"
    " --arch transformer_wmt_en_de --lr 0.001 --warmup-updates 8000 --max-tokens 3500"
    " --update-freq 32 --max-update 200 --fp16 --seed 1 --save-dir save"
    " --log-file save/train.log --save-interval-updates 50"
)


@pytest.fixture
def training(tmp_path):
    """training("shape", SEED="2"): a training on a made-up data folder; nothing is run."""
    data = tmp_path / "data"
    (data / "vanilla").mkdir(parents=True)
    (data / "parameters.txt").write_text("DATA=made-up\n")
    (data / "dict.txt").write_text("a 1\n")
    for lang in ("en", "de"):
        (data / "vanilla" / f"train.en-de.{lang}.idx").touch()
    usual = {"DATA": str(data), "SAVE": str(tmp_path / "save"), "GPUS": "0"}

    def make(model="ape", **variables):
        return Training("vanilla", model_named(model), LITERAL, Variables(usual | variables))

    (tmp_path / "save").mkdir()
    return make


def test_options_are_changed_in_place_or_added_behind_the_architecture():
    command = Command(["fairseq-train", "data", "--arch", "transformer", "--lr", "1"])
    command["--lr"], command["--max-shift"] = 2, 500
    wanted = "fairseq-train data --arch transformer --max-shift 500 --lr 2"
    assert shlex.join(command.words) == wanted


def test_a_batch_is_shared_by_the_ranks(training):
    words = training(CPU_RANKS="2").words()
    assert words[words.index("--update-freq") + 1] == "16"
    assert words[words.index("--nproc_per_node") + 1] == "2"


def test_until_something_is_trained_values_may_be_put_right(training):
    training(EXTRA="--no-such-option")._remember()
    training(EXTRA="--dropout 0")._remember()
    assert training().save.joinpath("recipe.txt").read_text().splitlines()[-1] == (
        "EXTRA=--dropout 0"
    )


OTHERS = [
    ("shape", {}, "MODEL=ape"),
    ("ape", {"SEED": "2"}, "SEED=1"),
    ("ape", {"EXTRA": "--dropout 0"}, "EXTRA="),
    ("ape", {"BATCH_TOKENS": "7000"}, "BATCH_TOKENS=112000"),
]


@pytest.mark.parametrize(
    "left",
    ["checkpoint_last.pt", "average-10-at-200.pt", "completed_updates.txt", "generated/a/test.txt"],
)
def test_what_is_left_of_a_training_is_nobody_elses(training, left):
    training()._remember()
    path = training().save / left
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("200\n")
    training()._remember()
    for model, variables, named in OTHERS:
        with pytest.raises(UserError, match=f"was trained with .*{named}"):
            training(model, **variables)._remember()
    assert "MODEL=ape" in (training().save / "recipe.txt").read_text()


def test_on_a_cpu_a_training_keeps_its_memory(training, monkeypatch, capfd):
    """Unless a person has said otherwise."""
    tell = "import os; print(os.environ['MALLOC_MMAP_MAX_'], os.environ['MALLOC_TRIM_THRESHOLD_'])"
    monkeypatch.setattr(Training, "words", lambda _: [sys.executable, "-c", tell])
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "5")
    training().start()
    assert capfd.readouterr().out == "0 5\n"


def test_a_seed_that_numpy_refuses_is_one_line(training):
    with pytest.raises(UserError, match="SEED must be at most 4294967295"):
        training(SEED="4294967296")


def test_a_checkpoint_to_adapt_must_be_there(tmp_path):
    with pytest.raises(UserError, match=r"none\.pt is missing"):
        adaptation(tmp_path / "none.pt", LITERAL, Variables({}))
