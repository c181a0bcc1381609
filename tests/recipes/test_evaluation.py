"""From the demo corpus to the tables: train, evaluate, compare, print, with real commands."""

import fcntl
import json
import shlex
import time

import pytest

from shape_fairseq.evaluation.results import read
from shape_fairseq.evaluation.significance import compare_all

TINY = {"ARCH_SIZE": "tiny", "GPUS": 0, "UPDATES": 12, "SAVE_EVERY": 1, "MAX_SHIFT": 20}
# An untrained model never ends a sentence; one token for one of the source is enough here.
QUICK = {"GPUS": 0, "GENERATE_EXTRA": "--beam 1 --max-len-a 1 --max-len-b 5"}
QUICK |= {"LOWERCASED_TOKENIZED": 1}
EXTRA = "--disable-validation --num-workers 0 --no-last-checkpoints"


def train(recipes, demo, folder):
    """APE and SHAPE on INTERPOLATE, trained side by side."""
    batch = {"BATCH_TOKENS": 1500, "MAX_TOKENS": 1500, "EXTRA": EXTRA}
    started = {
        model: recipes.start("interpolate", model, DATA=demo, SAVE=folder / model, **batch, **TINY)
        for model in ("ape", "shape")
    }
    for process in started.values():
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
    return {model: folder / model for model in started}


def check_orphan(recipes, demo, save, results):
    """A translation that a kill left alone keeps others out for as long as it writes."""
    process = recipes.start("evaluate", save, DATA=demo, RESULTS=results, **QUICK)
    while not (logs := list(save.glob("generated/*/*.txt.log"))) or not logs[0].stat().st_size:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.kill()
    process.wait()
    with open(save / "generated" / ".lock") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_EX)  # when it has ended
    assert not results.exists()


def evaluate(recipes, demo, trained, folder):
    """Both models evaluated side by side into one folder."""
    started = [
        recipes.start("evaluate", save, DATA=demo, RESULTS=folder, **QUICK)
        for save in trained.values()
    ]
    for process in started:
        output, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
        assert "macro average of valid (as in paper): BLEU" in output
        assert "macro average of all (split): BLEU" in output


def test_from_checkpoints_to_tables(recipes, demo, tmp_path):
    # One test, because pytest's processes would each train and translate for tests of their own.
    trained = train(recipes, demo, tmp_path / "checkpoints")
    results = tmp_path / "results"
    check_orphan(recipes, demo, trained["ape"], results)
    evaluate(recipes, demo, trained, results)
    check_records(results)
    check_tables(recipes, results)
    check_refusals(recipes, demo, trained["ape"], results, tmp_path / "other")


def check_records(results):
    """A result records what it depends on."""
    by_name = {path.name: json.loads(path.read_text()) for path in results.iterdir()}
    assert sorted(by_name) == ["interpolate-ape-seed1.json", "interpolate-shape-k20-seed1.json"]
    for result in by_name.values():
        assert result["bleu"].keys() == {"as_in_paper", "split"}
        assert all(scores.keys() == {"valid", "test"} for scores in result["bleu"].values())
        # 24 and 25 sentences in sequences of ten have 21 and 22 boundaries.
        assert result["separators"]["valid"]["expected"] == 21
        assert result["separators"]["test"]["expected"] == 22
        signature = result["signature"]
        assert len(signature["averaged_updates"]) == 10
        assert signature["data"]["DATA"] == "demo"
        assert signature["generation"]["average"] == "10"
        assert "--beam 4 --lenpen 0.6" in signature["generation"]["options"]
        assert "--beam 1" in signature["generation"]["options"]  # ours, given later, wins
        assert signature["sacrebleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
        assert {"python", "torch", "sacrebleu"} <= signature["versions"].keys()
        assert result["other_metrics"].keys() == {"chrF2", "TER", "lowercased tokenized BLEU"}
        assert result["other_metrics"].keys() == signature["other_metrics"].keys()
        assert result["training"]["updates"] == signature["averaged_updates"][-1]
        assert result["training"]["seconds"] > 0
        assert result["training"]["hardware"] == "CPU, 1 process"
    assert len({result["signature"]["checkpoint"] for result in by_name.values()}) == 2


def check_tables(recipes, results):
    """Tables and significance come out of the results."""
    files = sorted(results.iterdir())
    ape = json.loads(files[0].read_text())
    text = recipes.shape_fairseq("tables", *files)
    row = next(line for line in text.splitlines() if line.startswith("INTERPOLATE  "))
    assert f"{ape['bleu']['as_in_paper']['valid']:.2f}" in row and "x1.00" in row
    assert "SHAPE (K=20)" in text and "missing" in text
    assert [f"Table {number}" in text for number in (2, 5, 6, 7)] == [True] * 4
    compared = list(compare_all([read(path) for path in files], samples=50))
    assert [row["group"] for row in compared] == ["valid", "valid", "test", "test"]
    assert compared[0]["p_value"] is None and 0 < compared[1]["p_value"] <= 1


def check_refusals(recipes, demo, save, results, unused):
    """Nothing is overwritten, and what cannot be evaluated is refused with one line."""
    again = recipes.refused("evaluate", save, DATA=demo, RESULTS=results, **QUICK)
    assert "exists already" in again
    other = {"DATA": demo, "RESULTS": unused, **QUICK}
    few = recipes.refused("evaluate", save, AVERAGE=50, **other)
    assert "50 are to be averaged" in few
    assert "no subset dev" in recipes.refused("evaluate", save, SUBSETS="dev", **other)
    assert "recipe.txt is missing" in recipes.refused("evaluate", demo, **other)
    (save / "completed_updates.txt").unlink()
    unfinished = recipes.refused("evaluate", save, **other)
    assert "is not trained to its end" in unfinished and "UNFINISHED=1" in unfinished
    commands = recipes.run("evaluate", save, UNFINISHED=1, DRY_RUN=1, **other).splitlines()
    assert commands[-1].endswith(f"{unused}/interpolate-ape-seed1-at-12.json")
    assert not unused.exists()


def test_tuning_trains_evaluates_and_reports(recipes, demo, tmp_path):
    save = tmp_path / "tune"
    small = TINY | QUICK | {"UPDATES": 2, "BATCH_TOKENS": 500, "MAX_TOKENS": 500, "EXTRA": EXTRA}
    small |= {"AVERAGE": 1, "DATA": demo, "SAVE": save, "SHIFTS": "10"}
    del small["MAX_SHIFT"]
    output = recipes.run("tune_max_shift", **small)
    result = json.loads((save / "results" / "extrapolate-shape-k10-seed1.json").read_text())
    assert result["max_shift"] == 10 and result["setting"] == "extrapolate"
    assert result["bleu"]["as_in_paper"].keys() == {"valid"}
    assert f"max-shift 10: BLEU {result['bleu']['as_in_paper']['valid']:.2f} on valid" in output
    assert output.splitlines()[-1] == "best: 10"


def test_tuning_tries_the_shifts_of_appendix_b(recipes, tmp_path):
    output = recipes.run("tune_max_shift", DATA="data", SAVE=tmp_path / "tune", GPUS=8, DRY_RUN=1)
    trainings = [*map(shlex.split, output.splitlines())]
    shifts = [words[words.index("--max-shift") + 1] for words in trainings]
    assert shifts == ["10", "20", "30", "40", "100", "500"]
    assert [words[1] for words in trainings] == ["data/extrapolate"] * 6
    assert not (tmp_path / "tune").exists()
