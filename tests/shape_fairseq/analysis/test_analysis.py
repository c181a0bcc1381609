"""The analyses and the report on small inputs whose answers are known."""

import dataclasses
import json
import shutil
import subprocess

import pytest
import torch

from shape_fairseq.analysis import (
    base,
    claims,
    curves,
    length_bleu,
    report,
    similarity,
    speed,
    swap,
    token_scores,
)
from shape_fairseq.analysis.buckets import Buckets
from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import results, tables
from shape_fairseq.evaluation.results import Result
from shape_fairseq.files import sha256

SENTENCE = "ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster"
WORDS = SENTENCE.split()


def test_no_bucket_holds_trained_and_untrained_lengths():
    buckets = Buckets.over([3, 20, 30, 31, 95], trained=30, width=8)
    assert buckets.ends[:5] == [6, 14, 22, 30, 38] and buckets.ends[-1] >= 95
    assert buckets.number(30) == 3 and buckets.number(31) == 4 and buckets.number(1000) == 12
    assert buckets.untrained(30)[:5] == [False] * 4 + [True]
    assert buckets.names()[3:5] == ["23–30", "31–38"]


def test_the_last_bucket_is_no_handful():
    lengths = [5] * 50 + [15] * 50 + [25] * 3 + [95]
    assert Buckets.over(lengths, trained=None, width=10, fewest=4).ends == [10, 20, 100]
    # ... but it never reaches back into the trained lengths.
    assert Buckets.over(lengths, trained=20, width=10, fewest=99).ends == [10, 20, 100]


def test_similarity_is_one_without_a_shift_and_less_with_one(build, batch):
    model = build("transformer_tiny")
    matrices = torch.tensor(similarity.pairwise(model, batch([9]), offsets=[0, 0, 50]))
    assert matrices.shape == (3, 3, 3)  # the input and two layers
    assert torch.allclose(matrices[:, 0, 1], torch.ones(3), atol=1e-5)
    assert (matrices[:, 0, 2] < 0.99).all()
    assert torch.allclose(matrices, matrices.transpose(1, 2), atol=1e-5)


def test_similarity_is_the_mean_over_positions(build, batch):
    model, tokens = build("transformer_tiny"), batch([6])
    states = [similarity.layer_states(model, tokens, offset)[-1] for offset in (0, 40)]
    by_hand = torch.nn.functional.cosine_similarity(*states, dim=-1).mean().item()
    matrix = similarity.pairwise(model, tokens, [0, 40])[-1]
    assert matrix[0][1] == pytest.approx(by_hand, abs=1e-5)
    assert similarity.between_offsets(matrix) == [matrix[0][1]]


def test_the_sentence_that_moved_is_found_from_its_end():
    assert swap.at(swap.PLACES["original"], [["a", "b", "c"]]) == ["a"]
    # A <sep> that is missing elsewhere costs nothing.
    assert swap.at(swap.PLACES["swapped"], [["b c", "a"]]) == ["a"]


def test_frequencies_are_told_apart_by_their_digits():
    assert [token_scores.frequency_bucket(n) for n in (0, 1, 9, 10, 99, 100)] == [0, 1, 1, 2, 2, 3]
    assert token_scores.frequency_names(3) == ["unseen", "1–9", "10–99"]


LOG = """epoch 001:    100 / 117 loss=8.2, ppl=272.28, num_updates=100, train_wall=35, wall=40
epoch 001 | valid on 'valid' subset | loss 8.59 | ppl 353.65 | bsz 10 | num_updates 50
epoch 001 | valid on 'valid' subset | loss 7.23 | ppl 117.37 | num_updates 100 | best_loss 7.2
epoch 001 | loss 8.1 | ppl 234.97 | num_updates 120 | gnorm 0.5 | train_wall 39 | wall 50
epoch 002 | valid on 'valid' subset | loss 6.64 | ppl 71.9 | num_updates 130 | best_loss 6.64
"""
JSON_LOG = """{"epoch": 1, "ppl": "9", "num_updates": "100", "train_wall": "35", "wall": "40"}
{"epoch": 1, "valid_loss": "8.5", "valid_ppl": "353.65", "valid_num_updates": "50"}
"""


def test_curves_are_read_from_fairseqs_log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG)
    perplexities, seconds = curves.read_log(path)
    assert perplexities == {50: 353.65, 100: 117.37, 130: 71.9}
    assert seconds == {0: 0, 100: 40, 120: 50}
    assert [curves.time_of(update, seconds) for update in perplexities] == [20, 40, 55]
    path.write_text(JSON_LOG)
    assert curves.read_log(path) == ({50: 353.65}, {0: 0, 100: 40})
    path.write_text("epoch 001:    100 / 117 loss=8.2\n")
    with pytest.raises(UserError, match="no validation"):
        curves.read_log(path)


def test_speed_is_the_median_of_the_ratios_within_a_turn():
    found = speed.summarize({"ape": [1.0, 10.0, 1.0], "rpe": [2.0, 20.0, 1.0]})
    assert found["ape"]["speed"] == 1 and found["rpe"]["speed"] == 0.5


def test_peak_memory_is_what_a_step_holds_at_most():
    def step(turn: int) -> None:
        first = torch.ones(1000, 1000)
        second = first + 1
        del first
        second * 2

    assert speed.peak_memory(step, torch.device("cpu")) == pytest.approx(8e6, rel=0.01)


@pytest.fixture
def data(tmp_path):
    """The files of a data folder that BLEU by length needs: ten short and ten long sentences."""
    folder = tmp_path / "data"
    (folder / "text" / "extrapolate").mkdir(parents=True)
    lines = [" ".join(WORDS[:4])] * 10 + [" ".join(WORDS[:12])] * 10
    (folder / "text" / "extrapolate" / "test.en").write_text("\n".join(lines) + "\n")
    (folder / "parameters.txt").write_text("DATA=made-up\nEXTRAPOLATE_LIMIT=6\n")
    (folder / "dict.txt").write_text("ein 9\n")
    return folder


def make_result(data, model: str, good_when_long: bool, **changes) -> Result:
    """A model that translates short sentences, and long ones or not."""
    references = [" ".join(WORDS[:5])] * 10 + [" ".join(WORDS)] * 10
    hypotheses = references if good_when_long else references[:10] + [" ".join(WORDS[::-1])] * 10
    score = 80.0 if good_when_long else 40.0
    result = Result(
        setting="extrapolate",
        model=model,
        size="tiny",
        seed=1,
        max_shift=20 if model == "shape" else None,
        groups={"test": ["test"]},
        bleu={"as_in_paper": {"test": score}},
        separators={},
        training={"updates": 10, "seconds": 5.0, "parameters": 61, "hardware": "CPU"},
        signature={
            "checkpoint": model,
            "data": {"DATA": "made-up", "dictionary": sha256(data / "dict.txt")},
            "generation": {},
            "sacrebleu": "nrefs:1",
            "training": {"SEED": "1"},
        },
        hypotheses={"test": hypotheses},
        references={"test": references},
    )
    return dataclasses.replace(result, **changes)


@pytest.fixture
def runs(data, tmp_path):
    """A folder of runs with results of APE and SHAPE on EXTRAPOLATE, and their BLEU by length."""
    folder = tmp_path / "runs"
    for model in ("ape", "shape"):
        path = folder / "results" / f"extrapolate-{model}.json"
        results.write(make_result(data, model, good_when_long=model == "shape"), path)
    files = [str(path) for path in (folder / "results").iterdir()]
    out = str(folder / "analysis" / "extrapolate")
    length_bleu.main([*files, "--data", str(data), "--out", out, "--width", "3"])
    return folder


def test_bleu_by_length_tells_trained_from_untrained_lengths(runs):
    path = runs / "analysis" / "extrapolate" / "length-bleu.json"
    record = base.read(path)
    result = record["result"]
    assert result["trained_length"] == 6
    assert result["sequences"] == {"all": 20, "trained": 10, "untrained": 10}
    ape, shape = result["models"]["ape"], result["models"]["shape"]
    assert ape["trained"] == shape["trained"] == shape["untrained"] == pytest.approx(100)
    assert ape["untrained"] < 20
    assert ape["untrained_p_value"] is None and shape["untrained_p_value"] < 0.01
    filled = [bucket for bucket in result["buckets"] if bucket["sequences"]]
    assert [bucket["untrained"] for bucket in filled] == [False, True]
    assert record["signature"]["checkpoints"]["ape seed 1"]["sha256"] == "ape"
    for ending in ("png", "svg"):
        assert path.with_suffix(f".{ending}").stat().st_size > 1000


def test_results_that_cannot_be_compared_are_refused(data, tmp_path):
    def refuse(message, *found):
        paths = []
        for number, result in enumerate(found):
            paths.append(tmp_path / message[:4] / f"{number}.json")
            results.write(result, paths[-1])
        with pytest.raises(UserError, match=message):
            out = str(tmp_path / "refused")
            length_bleu.main([*map(str, paths), "--data", str(data), "--out", out])
        assert not (tmp_path / "refused").exists()

    ape, shape = (make_result(data, model, True) for model in ("ape", "shape"))
    refuse("no result of APE", shape)
    refuse("several settings", ape, dataclasses.replace(shape, setting="vanilla"))
    refuse("different test sets", ape, dataclasses.replace(shape, references={"test": ["other"]}))
    elsewhere = {**ape.signature, "data": {"DATA": "other", "dictionary": "other"}}
    refuse("of other data", dataclasses.replace(ape, signature=elsewhere))


def test_a_result_is_never_overwritten(runs, data):
    files = [str(path) for path in (runs / "results").iterdir()]
    out = str(runs / "analysis" / "extrapolate")
    with pytest.raises(UserError, match="exists already"):
        length_bleu.main([*files, "--data", str(data), "--out", out])


def check(sentence: str, analyses: dict, *found: Result) -> claims.Verdict:
    (claim,) = [claim for claim in claims.CLAIMS if claim.sentence.startswith(sentence)]
    return claim.check(claims.Runs(analyses, tables.by_data(list(found))))


def test_claims_without_a_measurement_are_not_measured():
    empty = claims.Runs({}, [])
    assert {claim.check(empty).verdict for claim in claims.CLAIMS} == {claims.UNKNOWN}


def similarities(ape: float, shape: float) -> dict:
    models = {"ape": {"mean": ape}, "shape": {"mean": shape}}
    return {("interpolate", "similarity"): {"offsets": [0, 100], "models": models}}


@pytest.mark.parametrize(
    ("ape", "shape", "expected"),
    [(0.7, 0.97, claims.HOLDS), (0.7, 0.9, claims.FAILS), (0.96, 0.97, claims.FAILS)],
)
def test_shift_invariance_is_judged_by_one_threshold(ape, shape, expected):
    found = check("SHAPE learns to be shift invariant", similarities(ape, shape))
    assert found.verdict == expected and f"SHAPE {shape:.3f}" in found.measured


def drops(ape: tuple[float, float], shape: tuple[float, float]) -> dict:
    models = {
        label: {"bleu": {"original": before, "swapped": after}, "drop": before - after}
        for label, (before, after) in (("ape", ape), ("shape", shape))
    }
    return {("interpolate", "swap"): {"models": models}}


def test_swapping_needs_models_that_translate():
    def verdict(ape, shape):
        return check("Moving a sentence", drops(ape, shape)).verdict

    assert verdict((28.81, 20.74), (28.51, 27.06)) == claims.HOLDS
    assert verdict((28.81, 27.00), (28.51, 20.06)) == claims.FAILS
    assert verdict((2.0, 1.0), (2.0, 2.0)) == claims.UNKNOWN


def test_scores_are_compared_with_the_papers_words(data):
    ape, shape = (make_result(data, model, model == "shape") for model in ("ape", "shape"))

    def on(setting):
        found = [dataclasses.replace(one, setting=setting) for one in (ape, shape)]
        return check(f"On {setting.upper()}", {}, *found).verdict

    assert on("vanilla") == claims.FAILS  # 40 and 80 BLEU are not comparable
    assert on("interpolate") == claims.HOLDS


def test_speed_is_judged_over_all_settings():
    def verdict(*speeds):
        analyses = {
            (setting, "speed"): {"models": {"shape": {"training": {"speed": speed}}}}
            for setting, speed in zip(("vanilla", "interpolate"), speeds, strict=True)
        }
        return check("SHAPE's training is as fast", analyses)

    assert verdict(1.02, 0.93) == claims.Verdict("x1.02 (VANILLA), x0.93 (INTERPOLATE)", "holds")
    assert verdict(0.95, 0.91).verdict == claims.FAILS


def token_ratios(rare: float, all_tokens: float, untrained: float) -> dict:
    rows = [{"tokens": 0, "ratio": None}, {"tokens": 50, "ratio": rare}]
    rows += [{"tokens": 100, "ratio": rare}, {"tokens": 900, "ratio": all_tokens}]
    parts = {"all": all_tokens, "trained": all_tokens, "untrained": untrained}
    result = {name: {"tokens": 500, "ratio": ratio} for name, ratio in parts.items()}
    result["by_frequency"] = rows
    return {("interpolate", "token-scores"): result, ("extrapolate", "token-scores"): result}


def test_token_scores_are_judged_by_half():
    rare, beyond = "Interpolation is particularly", "Better extrapolation"
    assert check(rare, token_ratios(0.6, 0.55, 0.4)).verdict == claims.HOLDS
    assert check(rare, token_ratios(0.52, 0.55, 0.4)).verdict == claims.FAILS
    assert check(beyond, token_ratios(0.6, 0.55, 0.4)).verdict == claims.FAILS
    assert check(beyond, token_ratios(0.6, 0.55, 0.7)).verdict == claims.HOLDS


def test_the_report_shows_what_was_measured_and_needs_no_network(runs):
    report.main([str(runs)])
    text = (runs / "report.html").read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("data:image/svg+xml;base64,") == 1
    row = next(line for line in text.splitlines() if "SHAPE extrapolates better" in line)
    assert ">holds<" in row and "SHAPE 100.00, APE" in row and "29.80" in row
    assert "10 sentences, p = 0.0" in row
    row = next(line for line in text.splitlines() if "Moving a sentence" in line)
    assert ">not measured<" in row and "drop 1.45" in row
    assert "Table 2" in text and "SHAPE (K=20)" in text
    assert "missing" not in text  # rows of models that were not trained are left out
    assert text.count("Not measured.") == len(report.SECTIONS) - 1
    with pytest.raises(UserError, match="exists already"):
        report.main([str(runs)])


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no analysis"):
        report.main([str(tmp_path)])
    broken = tmp_path / "analysis" / "vanilla" / "swap.json"
    broken.parent.mkdir(parents=True)
    broken.write_text(json.dumps({"result": {}}))
    with pytest.raises(UserError, match="no result of an analysis"):
        report.main([str(tmp_path)])
    assert not (tmp_path / "report.html").exists()


def screenshot(page, image, width: int, dark: bool):
    """The page as Chromium draws it: height x width x RGB, from 0 to 1."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium to look at the report with (Debian: apt-get install chromium)")
    subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--hide-scrollbars", f"--user-data-dir={image}-profile"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *(f"--screenshot={image}", f"--window-size={width},3000", page.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    from matplotlib.image import imread

    return imread(image)[..., :3]


def test_the_report_fits_a_phone_in_light_and_dark(runs, tmp_path):
    report.main([str(runs)])
    for dark in (False, True):
        pixels = screenshot(runs / "report.html", tmp_path / f"{dark}.png", 390, dark)
        assert pixels.shape[1] == 390
        assert (pixels[0, 0].mean() < 0.3) == dark
        edge = pixels[:, -3:]
        assert (edge == edge[0, 0]).all()  # nothing reaches over the right edge
        assert pixels.std() > 0.05  # and there is something on the page
