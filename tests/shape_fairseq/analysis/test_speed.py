"""Table 6 and its figure."""

import pytest

from shape_fairseq.analysis import speed
from shape_fairseq.errors import UserError


def model(training: float, generation: float, memory: float) -> dict:
    return {
        "training": {"seconds": 0.0125, "speed": training, "turns": [0.01, 0.0125, 0.02]},
        "generation": {"seconds": 0.5, "speed": generation, "turns": [0.5] * 3},
        "step_memory": memory,
        "parameters": 1234567,
    }


RESULT = {
    "setting": "extrapolate",
    "device": "CPU",
    "models": {"ape": model(1, 1, 2e6), "rpe": model(0.8, 0.905, 3.14e6), "cape": model(1, 1, 0)},
}


def test_the_table_stands_beside_the_papers_speed():
    table = speed.table(RESULT)
    assert table.rows == [
        ["APE", "12 ms", "x1.00", "x1.00", "x1.00", "2.0 MB", "1,234,567"],
        ["RPE", "12 ms", "x0.80", "x0.91", "x0.91", "3.1 MB", "1,234,567"],
        ["CAPE", "12 ms", "x1.00", "-", "x1.00", "0.0 MB", "1,234,567"],
    ]
    assert table.title == "Table 6: speed on EXTRAPOLATE"
    assert table.notes == ["Medians of 3 turns on CPU; memory of a step beyond the weights."]


def test_the_figure_has_a_panel_for_each_number_and_the_first_model_at_the_top():
    (figure,) = speed.plot(RESULT).values()
    labels = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    assert labels == [["x1.00", "x0.80", "x1.00"], ["x1.00", "x0.91", "x1.00"], ["2", "3", "0"]]
    assert all(axis.yaxis_inverted() for axis in figure.axes)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == ["APE", "RPE", "CAPE"]


def test_without_ape_there_is_nothing_to_compare_with(tmp_path):
    checkpoint = tmp_path / "a.pt"
    checkpoint.touch()
    arguments = [f"rpe={checkpoint}", "--data", str(tmp_path), "--out", str(tmp_path)]
    with pytest.raises(UserError, match="speed is relative to APE: give ape=CHECKPOINT too"):
        speed.main(arguments)
    (tmp_path / "speed.json").touch()
    with pytest.raises(UserError, match="exists already"):
        speed.main(arguments)
