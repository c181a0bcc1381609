"""An experiment's file: what is in it is checked, and what is shipped is what the paper did."""

from collections import Counter
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import documentation, keys, load
from shape_fairseq.experiment.jobs import check_graph
from shape_fairseq.experiment.plan import Plan, job_environment

RECIPES = Path(__file__).parents[3] / "recipes"
DEMO = RECIPES / "demo.toml"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.interpolate.updatse=3", "no key training.interpolate.updatse: .* mean updates?"),
        ("training.interpolate.position_range=1.5", "position_range must be a whole number"),
        ("beam=3", "no key beam: did you mean translation.beam?"),
        ("training.updates=3", "no key training.updates: did you mean training.vanilla.updates?"),
        ("training.interpolate.updates=x", "updates must be a whole number, not 'x'"),
        ("training.interpolate.updates=3.5", "updates must be a whole number, not 3.5"),
        ("training.interpolate.updates=true", "updates must be a whole number, not True"),
        ("training.interpolate.updates=0", "updates must be at least 1, not 0"),
        ("training.interpolate.falling_lr=nan", "falling_lr must be at least 0, not nan"),
        ("corpus.nesting=2", "corpus.nesting must be at most 1, not 2"),
        ('models=["ape", "shape", "bert"]', "models: there is no 'bert': choose ape, shape"),
        ('models=["ape", "shap"]', "models: there is no 'shap': did you mean shape?"),
        ('settings=["foo"]', "settings: there is no 'foo': choose vanilla, extrapolate"),
        ("settings=[]", "settings must not be empty"),
        ('analysis.names=["typo"]', "analysis.names: there is no 'typo'"),
        ("corpus.kind=demos", "corpus.kind: there is no 'demos': did you mean demo?"),
        ("corpus.kind=multi30k", "corpus.seed is for the demo corpus"),
        ("corpus.raw=a:b", "corpus.raw must be a path without colons"),
        ("corpus.target_lang=../de", "corpus.target_lang must be a language such as en"),
        ("seeds=[1, 1]", "seeds names something twice"),
        ("seeds=3", r"seeds must be a list such as \[1, 2\], not 3"),
        ("training=3", "training must be a section"),
        ("training.options='", "training.options cannot be split into words"),
        ("name=../up", "name must be letters"),
        ("cluster={kind = 'slurm'}", "cluster.gpus is missing"),
        ("updates", "--set updates: give KEY=VALUE"),
        ("translation.lenpen=nan", "translation.lenpen must be a number up to"),
        ("cluster.hours=inf", "cluster.hours must be a number up to"),
        ("seeds=[4294967296]", "seeds must be at most 4294967295"),
        ("training.interpolate.updates=1000000000000", "updates must be a number up to"),
        ("translation.average=11", "training.saves = 10 a training on extrapolate saves 10"),
        ("training.batch_tokens=1500", "must be a multiple of training.max_tokens \\(400\\)"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(override, message):
    with pytest.raises(UserError, match=message) as error:
        load(DEMO, [override])
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.toml is missing"):
        load(tmp_path / "nowhere.toml", [])
    for content in (b"name = ", b"\xff"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UserError, match="bad.toml"):
            load(tmp_path / "bad.toml", [])
    (tmp_path / "bad.toml").write_text('settings = ["vanilla"]')
    with pytest.raises(UserError, match="training.vanilla.updates is missing"):
        load(tmp_path / "bad.toml", [])


def test_values_can_be_overridden():
    chosen = ["training.interpolate.updates=2000", "corpus.raw=some/folder", "seeds=[3, 4]"]
    experiment = load(DEMO, [*chosen, "corpus.nesting=1"])
    assert experiment.training.interpolate.updates == 2000
    assert experiment.corpus.raw == "some/folder" and experiment.corpus.nesting == 1.0
    assert experiment.seeds_of("vanilla") == [3, 4]


def test_the_documentation_has_every_key():
    text = documentation()
    for path, item in list(keys()):
        if not path.startswith(("training.extra", "training.inter", "training.scaling")):
            assert item.metadata["help"] in text, path


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
    ("name", "cells"), [("demo", 6), ("demo-full", 9), ("multi30k", 9), ("positions", 32)]
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
