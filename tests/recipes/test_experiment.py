"""An experiment goes from its corpus to the report, goes on after a stop, and tells of failures."""

import json
import math
import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
import torch

import shape_fairseq.models  # noqa: F401 - lets torch load fairseq's checkpoints
from tests.recipes.checkpoints import trained_weights

pytestmark = pytest.mark.slow
JOB = re.compile(r"\[(\d+)/\d+\] ")
# Corpus, lengths, training, evaluation, report, in the order in which they come to an end: how long
# after its start a kill may come.
SECONDS = {1: 12, 4: 4, 2: 16, 3: 16, 5: 1}
ORDER = list(SECONDS)


def test_from_the_corpus_to_the_report(small_experiment):
    out = small_experiment / "out"
    stopped = (small_experiment / "first.txt").read_text()
    assert stopped == "1 error: stopped: run the same command again to go on\n"
    lines = (small_experiment / "second.txt").read_text().splitlines()
    # The corpus was there; the training that was stopped goes on.
    assert [line for line in lines if line.startswith("[2/9] Train APE on INTERPOLATE (about ")]
    assert not [line for line in lines if line.startswith("[1/9]")]
    assert [line for line in lines if line.startswith("INTERPOLATE  ") and "SHAPE (K=10)" in line]
    assert lines[-1] == f"All tables and figures: {out}/report.html"
    assert "INTERPOLATE" in (out / "report.html").read_text()
    results = sorted(path.name for path in (out / "results").iterdir())
    assert results == ["interpolate-ape-seed1.json", "interpolate-shape-k10-seed1.json"]
    made = out / "analysis" / "interpolate"
    assert sorted(path.stem for path in made.glob("*.json")) == ["length-bleu", "similarity"]
    similarity = json.loads((made / "similarity.json").read_text())["result"]
    assert similarity["offsets"] == [0, 2, 5, 10]
    assert (out / "analysis" / "lengths.json").exists()


def test_the_learning_rate_falls_along_a_cosine_that_ends_at_the_last_update(small_experiment):
    save, rates, updates = small_experiment / "out/checkpoints/interpolate-shape-k10-seed1", {}, 4
    for path in save.glob("checkpoint_[0-9]*.pt"):
        state = torch.load(path)
        (group,) = state["last_optimizer_state"]["param_groups"]
        rates[state["optimizer_history"][-1]["num_updates"]] = group["lr"]
    del rates[updates]  # the next update's, and there is none
    falling = {at: 0.001 * (1 + math.cos(math.pi * at / updates)) for at in rates}
    assert rates == pytest.approx(falling) and len(rates) == updates - 1


def test_nothing_is_done_twice_and_nothing_is_mixed(recipes, small_experiment):
    out = small_experiment / "out"
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*") if path.is_file()}
    output = recipes.finish(recipes.experiment(out))
    assert "[" not in output.partition("\n")[0] and f"{out}/report.html" in output
    for path in (out / ".lock", out / "experiment.json"):
        before.pop(path, None)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    listed = recipes.finish(recipes.experiment(out, "--list"))
    assert listed.splitlines()[-1] == "9 of 9 done"
    models = 'models=["ape", "shape", "rpe"]'
    more = recipes.finish(recipes.experiment(out, "--list", "--set", models))
    assert "left  train-interpolate-rpe-seed1" in more
    refusal = refused(recipes, out, "--set", "training.interpolate.updates=8")
    assert refusal == (
        f"error: {out} was made with training.interpolate.updates = 4, not 8:"
        " use that or another --out"
    )


def refused(recipes, *arguments) -> str:
    """The one line of an experiment that does not start."""
    process = recipes.experiment(*arguments)
    output, errors = process.communicate()
    assert process.returncode == 1 and output == "" and errors.count("\n") == 1, output + errors
    return errors.strip()


def test_one_experiment_at_a_time(recipes, tmp_path):
    import fcntl

    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another experiment is still running" in refused(recipes, tmp_path)


def test_a_dry_run_prints_the_commands_and_needs_no_data(recipes, tmp_path):
    out = tmp_path / "out"
    lines = recipes.finish(recipes.experiment(out, "--dry-run")).splitlines()
    assert not out.exists()
    (training,) = [line for line in lines if line.endswith("/recipes/interpolate.sh shape")]
    assert f"DATA={out}/data" in training and "MAX_SHIFT=10" in training
    assert "--adam-betas '\"'\"'(0.9, 0.98)'\"'\"'" in training
    # The command is one that can be pasted.
    words = [training.replace("bash", "DRY_RUN=1 bash")]
    command = recipes.command("bash", "-c", "\n".join(words))
    assert "--adam-betas '(0.9, 0.98)' --log-interval 1" in command and "--max-update 4" in command


def test_a_mistake_is_told_before_any_work(recipes, tmp_path):
    out = tmp_path / "out"
    message = refused(recipes, out, "--set", "training.interpolate.updatse=8")
    assert message.endswith(
        "small.toml: there is no key training.interpolate.updatse: did you mean updates?"
    )
    assert not out.exists()


def test_a_failure_names_its_log_and_the_mended_value_is_taken(recipes, tmp_path):
    wrong = ("--set", "corpus.kind=multi30k", "--set", f"corpus.raw={tmp_path}/none")
    demo_only = ("seed", "train_pairs", "valid_pairs", "test_pairs")
    file = tmp_path / "multi30k.toml"
    lines = Path(__file__).with_name("small.toml").read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith(demo_only)))
    command = ("experiment", file, "--out", tmp_path / "out")
    for raw in ("none", "other"):
        wrong = ("--set", "corpus.kind=multi30k", "--set", f"corpus.raw={tmp_path}/{raw}")
        process = recipes.start_command(*command, *wrong)
        _, errors = process.communicate()
        assert process.returncode == 1
        failure, summary = errors.splitlines()
        assert "'Make the corpus and its settings' failed: " in failure
        assert f"/{raw} is not a folder" in failure
        assert failure.endswith(f"(log: {tmp_path}/out/logs/corpus.log)")
        assert summary.startswith("error: 1 of 9 jobs failed")


def test_an_ape_model_is_adapted_to_shape(recipes, small_experiment, tmp_path):
    out, save = small_experiment / "out", tmp_path / "save"
    ape = out / "checkpoints/interpolate-ape-seed1"
    checkpoint = tmp_path / "average-2-at-4.pt"
    state = torch.load(ape / checkpoint.name)
    state["extra_state"]["previous_training_time"] = 1e6
    torch.save(state, checkpoint)
    shutil.copy(ape / "recipe.txt", tmp_path)
    # With next to no learning rate the model stays what it was made of.
    options = {"EXTRA": "--disable-validation --lr 1e-30", "UPDATES": 2, "MAX_SHIFT": 10}
    recipes.run("adapt", checkpoint, DATA=out / "data", SAVE=save, GPUS=0, **options)
    recipe = dict(line.split("=", 1) for line in (save / "recipe.txt").read_text().splitlines())
    assert (recipe["SETTING"], recipe["MODEL"]) == ("interpolate", "shape")
    assert recipe["MAX_SHIFT"] == "10" and recipe["FINETUNED_FROM"] == str(checkpoint)
    last = save / "checkpoint_last.pt"
    state = torch.load(last)
    assert state["cfg"]["model"].arch == "transformer_shape_tiny"
    assert 0 < state["extra_state"]["previous_training_time"] < 1e6
    adapted = trained_weights(last)
    for name, weights in trained_weights(checkpoint).items():
        torch.testing.assert_close(adapted[name], weights, rtol=0, atol=1e-20)
    other = out / "checkpoints/interpolate-shape-k10-seed1/average-2-at-4.pt"
    assert "is no APE model" in recipes.refused("adapt", other, DATA=out / "data", SAVE=save)


def outcome(out: Path, cell: str) -> dict:
    """What an experiment comes to, without times: the same bit for bit however it got there."""
    result = json.loads((out / "results" / f"{cell}.json").read_text())
    average = trained_weights(next((out / "checkpoints" / cell).glob("average-2-*.pt")))
    return {
        "bleu": result["bleu"],
        "hypotheses": result["hypotheses"],
        "weights": {name: value.numpy().tobytes() for name, value in average.items()},
        "averaged": result["signature"]["averaged_updates"],
        "lengths": json.loads((out / "analysis" / "lengths.json").read_text())["result"],
    }


def files_of(data: Path) -> dict[Path, bytes]:
    """The corpus, its settings and the data-bins, without logs."""
    paths = [path for path in data.rglob("*") if path.is_file() and path.suffix != ".log"]
    return {path.relative_to(data): path.read_bytes() for path in paths}


def test_kill_9_at_random_moments_changes_nothing(recipes, demo, small_experiment, tmp_path):
    """KILLS=20 SEED=7 python -m pytest tests/recipes/test_experiment.py -k kill_9 -s"""
    kills = int(os.environ.get("KILLS", 4))
    seed = int(os.environ.get("SEED", time.time()))
    print(f"\n{kills} kills, SEED={seed}")
    chance, cell = random.Random(seed), "interpolate-ape-seed1"
    options = ("--set", 'models=["ape"]', "--set", 'analysis.names=["lengths"]')
    while kills > 0:
        # An experiment of its own for every five kills, so that they find something to kill.
        out = tmp_path / f"out{kills}"
        for job in sorted(chance.choices(ORDER, k=min(kills, 5)), key=ORDER.index):
            kill_in(recipes.experiment(out, *options), job, chance.uniform(0, SECONDS[job]))
        recipes.finish(recipes.experiment(out, *options))
        assert outcome(out, cell) == outcome(small_experiment / "out", cell)
        assert files_of(out / "data") == files_of(demo)
        kills -= 5


def kill_in(process, job: int, delay: float) -> None:
    """Kill an experiment some time after this job, or a later one, has started."""
    for line in process.stdout:
        if (match := JOB.match(line)) and ORDER.index(int(match[1])) >= ORDER.index(job):
            break
    time.sleep(delay)
    ended = process.poll() is not None
    process.kill()
    _, errors = process.communicate()
    print(f"{'ended before the' if ended else 'kill'} {delay:.1f} s after {line.strip()}")
    assert errors == ""
