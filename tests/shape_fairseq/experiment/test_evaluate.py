"""What an evaluation would run, and what it refuses before it runs anything."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from shape_fairseq.data_folder import data_hash
from shape_fairseq.errors import UserError
from shape_fairseq.experiment.evaluate import VARIABLES, Evaluation, check
from shape_fairseq.experiment.locking import lock_folder
from shape_fairseq.experiment.variables import Variables


@pytest.fixture
def data(tmp_path):
    """A data folder in French and Czech whose data-bins are empty files."""
    folder = tmp_path / "data"
    for name in ("vanilla", "statistics"):
        (folder / name).mkdir(parents=True)
    (folder / "parameters.txt").write_text("DATA=own\nSOURCE_LANG=fr\nTARGET_LANG=cs\n")
    (folder / "dict.txt").write_text("pes 1\n")
    (folder / "statistics" / "subsets.tsv").write_text(
        "subset\tparts\tsacrebleu\nvalid\tnews1 news2\t\nnews1\tnews1\twmt1\nnews2\tnews2\t\n"
    )
    for subset in ("train", "news1", "news2"):
        for lang in ("fr", "cs"):
            (folder / "vanilla" / f"{subset}.fr-cs.{lang}.idx").touch()
    return folder


@pytest.fixture
def save(data, tmp_path):
    """The folder of a finished training of 40 updates with four checkpoints."""
    folder = tmp_path / "save"
    folder.mkdir()
    (folder / "recipe.txt").write_text(
        "SETTING=scaling_nmt\nMODEL=shape\nARCH_SIZE=tiny\nSEED=3\nMAX_SHIFT=7\n"
        f"DATA_HASH={data_hash(data)}\n"
    )
    for updates in (10, 20, 30, 40):
        (folder / f"checkpoint_1_{updates}.pt").touch()
    (folder / "completed_updates.txt").write_text("40\n")
    return folder


@pytest.fixture
def evaluation(data, save, tmp_path):
    """evaluation(BEAM=2): what recipes/evaluate.sh would do with these variables."""
    usual = {"DATA": data, "RESULTS": tmp_path / "results", "GPUS": 0, "AVERAGE": 2}

    def make(**variables) -> Evaluation:
        chosen = {name: str(value) for name, value in (usual | variables).items()}
        assert chosen.keys() <= set(VARIABLES)
        return Evaluation(save, Variables(chosen))

    return make


def option(words: list[str], name: str) -> str:
    """The value of an option; of two the last counts, as in fairseq."""
    return [value for word, value in zip(words, words[1:], strict=False) if word == name][-1]


def test_a_dry_run_prints_the_commands_in_their_order(evaluation, save, data, capsys):
    evaluation(DRY_RUN=1).start()
    average, first, second, score = map(shlex.split, capsys.readouterr().out.splitlines())
    assert average[:5] == [sys.executable, "-m", "shape_fairseq", "average", str(save)]
    assert option(average, "--number") == "2"
    assert option(average, "--output") == f"{save}/average-2-at-40.pt"
    for words, subset in ((first, "news1"), (second, "news2")):
        assert Path(words[0]).name == "fairseq-generate" and os.access(words[0], os.X_OK)
        # Another recipe on the data of VANILLA.
        assert words[1] == f"{data}/vanilla" and option(words, "--gen-subset") == subset
        assert option(words, "--path") == f"{save}/average-2-at-40.pt"
        assert (option(words, "--source-lang"), option(words, "--target-lang")) == ("fr", "cs")
        assert option(words, "--beam") == "4" and "--cpu" in words
    assert option(score, "--output").endswith("/results/scaling_nmt-shape-k7-seed3.json")
    assert "--lowercased-tokenized" not in score
    assert not (save / "generated").exists()


def test_what_a_person_sets_reaches_the_commands(evaluation):
    made = evaluation(
        BEAM=2,
        LENPEN=-0.5,
        MAX_TOKENS=99,
        SUBSETS="news2",
        LOWERCASED_TOKENIZED=1,
        GENERATE_EXTRA="--beam 9 --prefix 'a b'",
    )
    assert made.subsets == ["news2"]
    words = made.translation_of("news2")
    assert option(words, "--lenpen") == "-0.5" and option(words, "--max-tokens") == "99"
    assert "--beam 2" in " ".join(words) and option(words, "--beam") == "9"  # what is given wins
    assert words[-1] == "a b"
    assert "--lowercased-tokenized" in made.scoring()


def test_translations_of_other_options_are_kept_apart(evaluation, save):
    folders = {
        evaluation(**variables).generated
        for variables in ({}, {"BEAM": 5}, {"AVERAGE": 1}, {"GENERATE_EXTRA": "--seed 1/2"})
    }
    assert len(folders) == 4 and {folder.parent for folder in folders} == {save / "generated"}


def test_an_unfinished_training_is_evaluated_only_when_that_is_said(evaluation, save):
    (save / "completed_updates.txt").unlink()
    with pytest.raises(UserError, match="not trained to its end, its newest checkpoint has 40"):
        evaluation()
    (save / "checkpoint_1_40.pt").unlink()
    made = evaluation(UNFINISHED=1)
    assert made.result.name == "scaling_nmt-shape-k7-seed3-at-30.json"
    assert made.checkpoint.name == "average-2-at-30.pt"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DATA": ""}, "set DATA to the folder"),
        ({"DATA": "/nowhere"}, "data folder /nowhere is missing"),
        ({"AVERAGE": 5}, "has 4 checkpoints and 5 are to be averaged"),
        ({"AVERAGE": 0}, "AVERAGE must be a whole number of at least 1"),
        ({"SUBSETS": "news1 dev"}, "vanilla has no subset dev"),
        ({"SUBSETS": "../vanilla/news1"}, r"has no subset \.\./vanilla/news1"),
        ({"BEAM": "wide"}, "BEAM must be a whole number of at least 1, not 'wide'"),
        ({"GENERATE_EXTRA": "'"}, "GENERATE_EXTRA cannot be split into words"),
        ({"DRY_RUN": "yes"}, "DRY_RUN must be 0 or 1, not 'yes'"),
    ],
)
def test_a_mistake_is_one_line_before_any_work(evaluation, save, variables, message):
    with pytest.raises(UserError, match=message) as error:
        evaluation(**variables)
    assert "\n" not in str(error.value) and not (save / "generated").exists()


def test_neither_other_data_nor_an_old_result_is_touched(evaluation, data, tmp_path):
    result = tmp_path / "results" / "scaling_nmt-shape-k7-seed3.json"
    result.parent.mkdir()
    result.write_text("mine")
    with pytest.raises(UserError, match="exists already: delete it or choose another RESULTS"):
        evaluation()
    result.unlink()
    (data / "dict.txt").write_text("kočka 1\n")
    with pytest.raises(UserError, match="was trained on other data than"):
        evaluation()


def test_two_evaluations_of_a_training_do_not_meet(evaluation, save):
    (save / "generated").mkdir()
    with (
        lock_folder(save / "generated", "another evaluation"),
        pytest.raises(UserError, match="another evaluation"),
    ):
        evaluation().start()
    assert not list(save.glob("average-*"))


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_the_end_of_a_command_is_handed_on(script, status):
    check(["bash", "-c", "true"])
    with pytest.raises(SystemExit) as stop:
        check(["bash", "-c", script])
    assert stop.value.code == status
