"""One table of all models, and which of them are told apart."""

import json

import pytest

from shape_fairseq.analysis import base, compare, length_bleu
from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import results

QUALITY = {"ape": False, "shape": True, "rope": True}


@pytest.fixture
def compared(data, make_result, tmp_path):
    """Three models of which two translate long sentences, in three seeds, and the speed of two."""
    folder = tmp_path / "compared"
    paths = []
    for model, good in QUALITY.items():
        for seed in (1, 2, 3):
            paths.append(folder / "results" / f"extrapolate-{model}-seed{seed}.json")
            results.write(make_result(model, good, seed=seed), paths[-1])
    out = folder / "analysis" / "extrapolate"
    length_bleu.main([*map(str, paths), "--data", str(data), "--out", str(out)])
    timing = {"seconds": 0.1, "speed": 0.97, "turns": [0.1]}
    measured = {"training": timing, "generation": timing, "step_memory": 2e6, "parameters": 6100}
    speed = {
        "setting": "extrapolate",
        "device": "cpu",
        "models": {"ape": measured, "rope": measured},
    }
    record = {"format": 1, "analysis": "speed", "signature": {}, "result": speed}
    (out / "speed.json").write_text(json.dumps(record))
    return folder


def test_one_row_for_each_model(compared, capsys):
    compare.main([str(compared), "--format", "markdown"])
    lines = capsys.readouterr().out.partition("Which are told apart")[0].splitlines()
    header = next(line for line in lines if line.startswith("| Model |"))
    assert header.split(" | ")[1:3] == [
        "EXTRAPOLATE up to 6 subwords",
        "EXTRAPOLATE beyond 6 subwords",
    ]
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in lines}
    assert rows["RoPE"] == [
        "RoPE", "100.00 ±0.00", "100.00 ±0.00", "x0.97", "2.0 MB", "6,100",
    ]  # fmt: skip
    assert rows["SHAPE"][3:] == ["missing"] * 3
    assert float(rows["APE"][2].split()[0]) < 20


def test_models_that_differ_are_told_apart_and_equal_ones_are_not(compared, capsys):
    compare.main([str(compared)])
    untrained = capsys.readouterr().out.split("Which are told apart: ")[-1].splitlines()
    assert untrained[0] == "EXTRAPOLATE beyond 6 subwords"
    assert untrained[1].split() == ["APE", "SHAPE"]
    shape, rope = untrained[3].split(), untrained[4].split()
    assert shape[0] == "SHAPE" and shape[1].endswith("*") and shape[1].startswith("+")
    assert rope[1] == shape[1] and rope[2] == "+0.00"
    assert "for 3 pairs (3 and 3 seeds)" in untrained[5]
    assert untrained[6].startswith("So 2 of 3 pairs are told apart")
    assert untrained[7:] == ["SHAPE is better than APE.", "RoPE is better than APE."]


def test_what_chance_makes_of_many_pairs_is_corrected(compared, capsys):
    """A pair whose p-value is just below 5 % is not told apart, as one of three questions."""
    path = compared / "analysis" / "extrapolate" / "length-bleu.json"
    record = json.loads(path.read_text())
    record["result"]["models"]["rope"]["differences"]["untrained"]["shape"]["p_value"] = 0.04
    record["result"]["models"]["rope"]["differences"]["untrained"]["ape"]["p_value"] = 0.02
    record["result"]["models"]["shape"]["differences"]["untrained"]["ape"]["p_value"] = 0.03
    path.write_text(json.dumps(record))
    base.read(path)
    compare.main([str(compared)])
    untrained = capsys.readouterr().out.split("Which are told apart: ")[-1]
    assert "So 0 of 3 pairs are told apart; without the correction 3 would be" in untrained


def test_a_folder_without_scores_by_length_is_refused(compared, tmp_path):
    (compared / "analysis" / "extrapolate" / "length-bleu.json").unlink()
    with pytest.raises(UserError, match="length-bleu.json to compare"):
        compare.main([str(compared)])
