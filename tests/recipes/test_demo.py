"""`make demo` goes from the corpus to the report, goes on after a stop, and tells of failures."""

import json
import math
import shutil
import signal

import pytest
import torch

import shape_fairseq.models  # noqa: F401 - lets torch load fairseq's checkpoints

# Each analysis has tests of its own; these are a table, figures of a model, and of all settings.
ANALYSES = ["length-bleu", "lengths", "similarity"]
# The corpus of the other tests: the demo finds it made already.
CORPUS = {"TRAIN_PAIRS": 1500, "VALID_PAIRS": 24, "TEST_PAIRS": 25, "BPE_MERGES": 300}
CORPUS |= {"NESTING": 1, "EXTRAPOLATE_LIMIT": 30, "GROUP_SIZE": 10, "SWAPPED_SAMPLE": 5}
SMALL = CORPUS | {
    "SETTINGS": "interpolate",
    "MODELS": "ape shape",
    "INTERPOLATE_UPDATES": 4,
    "INTERPOLATE_SHIFT": 10,
    "BATCH_TOKENS": 1000,
    "SIZE": "--encoder-embed-dim 16 --decoder-embed-dim 16",
    "SWAPPED_SEQUENCES": 2,
    "AVERAGE": 2,
    "SUBSETS": "test",
    "ANALYSES": " ".join(ANALYSES),
    # An untrained model never ends a sentence.
    "BEAM": 1,
    "GENERATE_EXTRA": "--max-len-a 1 --max-len-b 5",
}


@pytest.fixture(scope="module")
def out(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "demo"
    shutil.copytree(demo, folder / "data")
    return folder


def stop_while_training(recipes, out) -> None:
    """Interrupt the demo as a person would, as soon as it trains."""
    # Tests that run in the background ignore SIGINT, and what they start would do so too.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = recipes.start("demo", out, **SMALL)
    signal.signal(signal.SIGINT, handler)
    for line in process.stdout:
        if "APE on INTERPOLATE" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors == "error: stopped: run the same command again to go on\n"


def test_from_the_corpus_to_the_report(recipes, out):
    stop_while_training(recipes, out)
    output = recipes.run("demo", out, **SMALL)
    lines = output.splitlines()
    assert lines[0].startswith("[1/6] Make the corpus and its settings (about ")
    assert lines[1].startswith("[2/6] Train and translate: APE on INTERPOLATE (about ")
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
    check_the_learning_rate_falls(out / "checkpoints" / "interpolate-shape-seed1")
    check_a_second_start(recipes, out)


def check_the_learning_rate_falls(save) -> None:
    """From the demo's 0.002, along a cosine that ends at the last update."""
    updates, rates = SMALL["INTERPOLATE_UPDATES"], {}
    for path in save.glob("checkpoint_[0-9]*.pt"):
        state = torch.load(path)
        (group,) = state["last_optimizer_state"]["param_groups"]
        rates[state["optimizer_history"][-1]["num_updates"]] = group["lr"]
    del rates[updates]  # the next update's, and there is none
    falling = {at: 0.001 * (1 + math.cos(math.pi * at / updates)) for at in rates}
    assert rates == pytest.approx(falling) and len(rates) == updates - 1


def check_a_second_start(recipes, out) -> None:
    """Nothing is done twice, and nothing is mixed with other parameters."""
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*/*") if path.is_file()}
    again = recipes.run("demo", out, **SMALL)
    assert [line[:5] for line in again.splitlines() if line.startswith("[")] == ["[1/6]"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    refusal = recipes.refused("demo", out, **SMALL | {"INTERPOLATE_UPDATES": 8})
    assert "interpolate:4" in refusal


def test_multi30k_fills_the_table(recipes, first_lines_of_multi30k, tmp_path):
    settings = "vanilla extrapolate interpolate"
    small = SMALL | {f"{setting}_UPDATES": 2 for setting in settings.upper().split()}
    small |= {"SETTINGS": settings, "ANALYSES": "lengths"}
    small |= {"EXTRAPOLATE_LIMIT": 20, "GROUP_SIZE": 3}
    raw = first_lines_of_multi30k(train=1500, other=12)
    recipes.run("multi30k", tmp_path / "runs", RAW=raw, **small)
    results = sorted((tmp_path / "runs" / "results").iterdir())
    assert len(results) == 6
    table = recipes.shape_fairseq("tables", *results, "--table", "2", "--format", "markdown")
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    scored = {tuple(row[:2]) for row in rows if len(row) == 7 and "." in row[4]}
    models = {
        "vanilla": "SHAPE (K=20)",
        "extrapolate": "SHAPE (K=20)",
        "interpolate": "SHAPE (K=10)",
    }
    for setting, shape in models.items():
        assert {(setting.upper(), model) for model in ("APE", shape)} <= scored


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("EXTRAPOLATE_SHIFT", "a whole number of at least 1"),
        ("INTERPOLATE_FALLING_LR", "a learning rate such as 0.002"),
    ],
)
def test_a_wrong_number_is_refused_before_any_work(recipes, tmp_path, name, wanted):
    refusal = recipes.refused("demo", tmp_path, **{name: "x"})
    assert refusal == f"error: {name} must be {wanted}, not 'x'"


def test_a_failure_names_its_log(recipes, tmp_path):
    process = recipes.start("multi30k", tmp_path, RAW=tmp_path / "raw")
    _, errors = process.communicate()
    assert process.returncode == 1
    (line,) = errors.splitlines()
    assert "train.en.gz is missing" in line and line.endswith(f"(log: {tmp_path}/logs/prepare.log)")
