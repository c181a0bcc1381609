"""Every analysis on models that the recipes trained, and the report on all of them."""

import json
import shutil

import pytest
import torch

from shape_fairseq.analysis import curves, lengths, report, similarity, speed, swap, token_scores
from shape_fairseq.analysis.compute.models import DataBin, load_for_inference
from shape_fairseq.analysis.compute.token_scores import gold_scores
from shape_fairseq.errors import OptionError, UserError

MODELS = ("ape", "shape", "rpe")
TINY = {"ARCH_SIZE": "tiny", "GPUS": 0, "UPDATES": 4, "SAVE_EVERY": 2, "MAX_SHIFT": 20}
TINY |= {"BATCH_TOKENS": 1500, "MAX_TOKENS": 1500, "EXTRA": "--num-workers 0 --log-interval 1"}
SHORT = ("--beam", 1, "--max-len-a", 0, "--max-len-b", 20)


def train(recipes, demo, folder):
    """All models on INTERPOLATE, side by side."""
    started = [
        recipes.start("interpolate", model, DATA=demo, SAVE=folder / model, **TINY)
        for model in MODELS
    ]
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]


@pytest.fixture
def analyse(demo, tmp_path):
    """analyse(swap, "--beam", 2, models=["ape"]): the result of an analysis, with its figures."""

    def run(module, *options, models=(), data=demo, out=None):
        out = out or tmp_path / "runs" / "analysis" / "interpolate"
        arguments = [*options, "--out", out, *(["--data", data] if data else [])]
        arguments += [f"{model}={tmp_path}/{model}/checkpoint_last.pt" for model in models]
        module.main([str(argument) for argument in arguments])
        for ending in ("png", "svg"):
            assert (out / f"{module.NAME}.{ending}").stat().st_size > 1000
        record = json.loads((out / f"{module.NAME}.json").read_text())
        assert record["analysis"] == module.NAME and "torch" in record["signature"]["versions"]
        assert record["signature"]["checkpoints"].keys() == set(models)
        return record["result"]

    return run


def test_from_checkpoints_to_the_report(recipes, demo, analyse, tmp_path):
    # One test, because pytest's processes would each train for tests of their own.
    train(recipes, demo, tmp_path)
    check_similarity(analyse)
    check_swap(analyse)
    check_token_scores(analyse)
    check_curves(analyse, tmp_path)
    check_scores_are_fairseqs(demo, tmp_path)
    check_lengths(analyse)
    check_speed(analyse)
    report.main([str(tmp_path / "runs"), "--data", str(demo)])
    text = (tmp_path / "runs" / "report.html").read_text()
    assert text.count("data:image/svg+xml;base64,") == 8  # similarity and curves have two
    check_refusals(analyse, demo, tmp_path)


def check_similarity(analyse):
    """RPE has no positions to shift and is left out."""
    options = ("--sequences", 2, "--offsets", 0, 20)
    result = analyse(similarity, *options, models=MODELS)
    assert result["models"].keys() == {"ape", "shape"}
    for model in result["models"].values():
        assert len(model["sequences"]) == 2 and len(model["layers"]) == 3
        for matrix in model["layers"]:
            assert matrix[0][0] == pytest.approx(1, abs=1e-5)
            assert matrix[0][1] == pytest.approx(matrix[1][0], abs=1e-5) and matrix[0][1] < 1


def check_swap(analyse):
    result = analyse(swap, "--sequences", 3, *SHORT, models=MODELS)
    assert result["sequences"] == 3 and len(result["references"]) == 3
    for model in result["models"].values():
        assert model["drop"] == model["bleu"]["original"] - model["bleu"]["swapped"]
        assert [len(lines) for lines in model["sentences"].values()] == [3, 3]


def check_token_scores(analyse):
    """Every gold token but the end of sentence is in one cell."""
    result = analyse(token_scores, "--setting", "interpolate", models=["ape", "shape"])
    cells = [cell for row in result["cells"] for cell in row]
    assert sum(cell["tokens"] for cell in cells) == result["all"]["tokens"] > 500
    assert all((cell["ratio"] is None) == (cell["tokens"] == 0) for cell in cells)
    assert 0 < result["all"]["ratio"] < 1
    assert result["untrained"]["tokens"] == 0  # INTERPOLATE has no limit
    # Almost untrained models know little more than that there are some hundred symbols.
    assert -8 < result["mean_log_probability"]["ape"] < -3


def check_curves(analyse, folder):
    result = analyse(curves, *(folder / model for model in MODELS), data=None)
    runs = result["settings"]["interpolate"]
    assert [run["label"] for run in runs] == ["ape", "rpe", "shape"]
    for run in runs:
        assert run["updates"] == [2, 4] and run["seconds"] == sorted(run["seconds"])
        assert all(10 < perplexity < 10_000 for perplexity in run["perplexity"])


def check_scores_are_fairseqs(demo, folder):
    """The scores of gold tokens make up the perplexity that fairseq logged for this checkpoint."""
    data = DataBin(demo, "interpolate")
    model = load_for_inference(folder / "ape" / "checkpoint_last.pt", data, torch.device("cpu"))
    scores = gold_scores(model, data, "valid", max_tokens=1000, title="")
    perplexity = torch.cat(list(scores.values())).mean().neg().exp().item()
    logged, _ = curves.read_log(folder / "ape" / "train.log")
    assert perplexity == pytest.approx(logged[4], rel=1e-3)


def check_lengths(analyse):
    result = analyse(lengths)
    assert result["extrapolate"]["train"]["en"]["max"] <= 30
    assert result["interpolate"]["train"]["en"]["max"] > 100


def check_speed(analyse):
    options = ("--setting", "interpolate", "--turns", 1, "--beam", 1, "--max-tokens", 600)
    result = analyse(speed, *options, models=MODELS)
    ape, shape, rpe = (result["models"][model] for model in MODELS)
    assert ape["training"]["speed"] == ape["generation"]["speed"] == 1
    assert ape["parameters"] == shape["parameters"] < rpe["parameters"]
    # Equal tensors in every step; RPE holds tables besides, but no attention weights.
    assert shape["step_memory"] == pytest.approx(ape["step_memory"], rel=0.05)
    assert 0 < rpe["step_memory"] < 1.5 * ape["step_memory"]


def check_refusals(analyse, demo, folder):
    """Wrong inputs end in one line, before anything is written."""

    def refused(message, module, *options, **keywords):
        with pytest.raises((UserError, OptionError), match=message):
            analyse(module, *options, out=folder / "refused", **keywords)
        assert not (folder / "refused").exists()

    refused("no subset dev", similarity, "--subset", "dev", models=["ape"])
    refused("none of the models has absolute positions", similarity, models=["rpe"])
    refused("checkpoint .* is missing", similarity, models=["nothing"])
    refused("two models are compared", token_scores, models=["ape"])
    refused("relative to APE", speed, models=["shape"])

    other = folder / "other"  # without its recipe.txt a checkpoint tells only its vocabulary
    other.mkdir()
    state = torch.load(folder / "ape" / "checkpoint_last.pt", map_location="cpu")
    for side in ("encoder", "decoder"):
        state["model"][f"{side}.embed_tokens.weight"] = torch.zeros(7, 64)
    torch.save(state, other / "checkpoint_last.pt")
    refused("a vocabulary of 7 symbols", similarity, models=["other"])
    shutil.copy(folder / "ape" / "recipe.txt", other)
    recipe = (other / "recipe.txt").read_text()
    (other / "recipe.txt").write_text(recipe.replace("DATA_HASH=", "DATA_HASH=0"))
    refused("trained on other data", similarity, models=["other"])
    (other / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    (other / "recipe.txt").unlink()
    refused("is no checkpoint", swap, models=["other"])

    data = folder / "data"
    shutil.copytree(demo, data)
    index = data / "interpolate" / "valid.en-de.en.idx"
    whole = index.read_bytes()
    index.write_bytes(whole[:30])
    refused("valid .* is damaged", similarity, models=["ape"], data=data)
    index.write_bytes(whole)
    for path in (data / "interpolate").glob("valid.*.bin"):
        path.write_bytes(b"")
    refused("valid .* is empty", similarity, models=["ape"], data=data)
    reference = data / "reference" / "swapped" / "original.de"
    reference.write_text(reference.read_text().replace(" <sep> ", " "))
    refused("without <sep>", swap, models=["ape"], data=data)
