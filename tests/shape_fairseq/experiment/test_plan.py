"""The jobs of an experiment: what is shipped is what the paper did, and nothing is made twice."""

import re
from collections import Counter
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import load
from shape_fairseq.experiment.jobs import check_graph
from shape_fairseq.experiment.plan import Plan, job_environment

RECIPES = Path(__file__).parents[3] / "recipes"
DEMO = RECIPES / "demo.toml"


def trainings(jobs) -> list[str]:
    return [job.name.removeprefix("train-") for job in jobs if job.name.startswith("train-")]


def test_the_paper_has_41_trainings():
    jobs = Plan(load(RECIPES / "paper.toml", []), Path("out"), gpus=8).jobs
    check_graph(jobs)
    names = trainings(jobs)
    assert len(names) == len(set(names)) == 41
    settings = Counter(name.partition("-")[0] for name in names)
    assert settings == {"vanilla": 15, "scaling_nmt": 15, "extrapolate": 8, "interpolate": 3}
    shifts = {name for name in names if name.startswith("extrapolate-shape")}
    assert shifts == {f"extrapolate-shape-k{k}-seed1" for k in (10, 20, 30, 40, 100, 500)}
    chosen = next(job for job in jobs if job.name == "max-shift-extrapolate")
    assert len(chosen.needs) == 6


@pytest.mark.parametrize(
    ("name", "cells"),
    [("demo", 6), ("demo-full", 9), ("multi30k", 9), ("multi30k-small", 29), ("positions", 32)],
)
def test_the_shipped_experiments_are_whole(name, cells):
    jobs = Plan(load(RECIPES / f"{name}.toml", []), Path("out"), gpus=0).jobs
    check_graph(jobs)
    assert len(trainings(jobs)) == cells
    assert jobs[-1].name == "report" and len(jobs[-1].needs) == len(jobs) - 1


def test_a_seed_changes_the_training_and_nothing_else():
    first, second = (Plan(load(DEMO, [f"seeds=[{seed}]"]), Path("out"), 0).jobs for seed in (1, 2))
    assert first[0] == second[0] and "CORPUS_SEED" in first[0].environment
    one, other = (next(job for job in jobs if job.updates) for jobs in (first, second))
    differing = {key for key, value in one.environment.items() if other.environment[key] != value}
    assert differing == {"SEED", "SAVE"}


def test_an_option_of_a_model_reaches_it_and_no_other():
    chosen = ["training.extrapolate.position_range=64", "training.extrapolate.max_shift=7"]
    plan = Plan(load(DEMO, [*chosen, 'models=["ape", "shape", "randomized"]']), Path("out"), 0)
    given = {job.name: job.environment for job in plan.jobs if job.updates}
    has = {name for name, variables in given.items() if variables.get("POSITION_RANGE") == "64"}
    assert has == {"train-extrapolate-randomized-seed1"}
    assert given["train-extrapolate-shape-k7-seed1"]["MAX_SHIFT"] == "7"
    assert "MAX_SHIFT" not in given["train-extrapolate-ape-seed1"]


def test_bleu_by_length_takes_all_seeds_and_figures_of_one_model_the_first():
    jobs = {job.name: job for job in Plan(load(DEMO, ["seeds=[1, 2]"]), Path("out"), 0).jobs}
    seeds = {name: {need[-1] for need in jobs[name].needs} for name in jobs if "extrap" in name}
    assert seeds["length-bleu-extrapolate"] == {"1", "2"}
    assert sum("seed2" in word for word in jobs["length-bleu-extrapolate"].command) == 3
    assert seeds["speed-extrapolate"] == seeds["curves-extrapolate"] == {"1"}


def test_an_analysis_waits_for_its_own_setting_only():
    jobs = {job.name: job for job in Plan(load(DEMO, []), Path("out"), 0).jobs}
    assert all("extrapolate" in need for need in jobs["length-bleu-extrapolate"].needs)
    assert jobs["lengths"].needs == ("corpus",)


def test_an_analysis_that_lacks_a_model_is_left_out_or_refused():
    jobs = Plan(load(DEMO, ['models=["ape"]']), Path("out"), 0).jobs
    assert not [job for job in jobs if job.name.startswith("similarity")]
    with pytest.raises(UserError, match="similarity on interpolate needs the model shape"):
        Plan(load(DEMO, ['models=["ape"]', 'analysis.names=["similarity"]']), Path("out"), 0)


def test_jobs_inherit_no_variables_of_recipes():
    mine = {
        "PATH": "/bin",
        "UPDATES": "3",
        "EXTRA": "--x",
        "MAX_SHIFT": "7",
        "RAW": "r",
        "GPUS": "1",
    }
    environment = job_environment(mine, gpus=0)
    assert environment["PATH"] == "/bin" and not environment.keys() & mine.keys() - {"PATH"}


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_job_waits_for_what_it_reads_and_nothing_is_made_twice(file, gpus):
    jobs = Plan(load(file, ["seeds=[1, 2]"]), Path("out"), gpus).jobs
    for files in (Counter(p for job in jobs for p in job.products), Counter(j.log for j in jobs)):
        assert set(files.values()) == {1}
    waits_for: dict[str, set[str]] = {}
    for job in jobs:  # check_graph: what a job needs comes before it
        waits_for[job.name] = set(job.needs).union(*(waits_for[need] for need in job.needs))
        done, text = {job.name} | waits_for[job.name], job.shell()
        assert done >= {f"train-{cell}" for cell in re.findall(r"out/checkpoints/([\w-]+)", text)}
        results = re.findall(r"out/results/([\w-]+)\.json", text)
        averages = re.findall(r"out/checkpoints/([\w-]+)/average-", text)
        assert done >= {f"evaluate-{cell}" for cell in results + averages}
        assert "out/data" not in text or "corpus" in done
    assert waits_for["report"] == {job.name for job in jobs} - {"report"}


def test_data_that_is_prepared_already_is_not_made_again(tmp_path):
    chosen = [f"corpus={{kind = 'prepared', raw = '{tmp_path}'}}"]
    jobs = Plan(load(DEMO, chosen), Path("out"), 0).jobs
    check_graph(jobs)
    assert "corpus" not in {name for job in jobs for name in (job.name, *job.needs)}
    assert {job.environment["DATA"] for job in jobs if job.updates} == {str(tmp_path)}


def test_a_shift_that_is_tried_and_used_is_trained_once():
    chosen = ["training.interpolate.max_shift=7", "training.interpolate.tune_shifts=[3, 7]"]
    jobs = Plan(load(DEMO, [*chosen, "seeds=[4, 2]"]), Path("out"), 0).jobs
    shape = [name for name in trainings(jobs) if name.startswith("interpolate-shape")]
    # Every seed has the shift that is used, the first one also those to choose from.
    assert sorted(shape) == [
        f"interpolate-shape-{name}" for name in ("k3-seed4", "k7-seed2", "k7-seed4")
    ]
    (chosen_by,) = [job for job in jobs if job.name == "max-shift-interpolate"]
    assert chosen_by.needs == tuple(f"evaluate-interpolate-shape-k{k}-seed4" for k in (3, 7))


@pytest.mark.parametrize(("shift", "offsets"), [(40, "0 8 20 40"), (1, "0 1"), (0, None)])
def test_states_are_compared_at_two_offsets_at_least(shift, offsets):
    jobs = Plan(load(DEMO, [f"training.interpolate.max_shift={shift}"]), Path("out"), 0).jobs
    (words,) = [job.shell() for job in jobs if job.name == "similarity-interpolate"]
    # Without the option there are the paper's offsets.
    given = re.search(r"--offsets ([\d ]+) --data", words)
    assert (given and given[1]) == offsets


def test_sentences_that_move_are_translated_with_the_search_of_the_test_sets():
    chosen = ["translation.beam=3", "translation.lenpen=1.5"]
    jobs = {job.name: job for job in Plan(load(DEMO, chosen), Path("out"), 0).jobs}
    swap = jobs["swap-interpolate"].command
    assert swap[swap.index("--beam") + 1] == "3" and swap[swap.index("--lenpen") + 1] == "1.5"
    translate = jobs["evaluate-interpolate-ape-seed1"].environment
    assert (translate["BEAM"], translate["LENPEN"]) == ("3", "1.5")
