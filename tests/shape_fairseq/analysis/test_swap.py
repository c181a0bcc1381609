"""Table 1 and its figure."""

from shape_fairseq.analysis import swap


def model(original: float, swapped: float, missing: int = 0) -> dict:
    return {
        "bleu": {"original": original, "swapped": swapped},
        "drop": original - swapped,
        "separators": {"swapped": {"missing": missing, "expected": 1200}},
    }


RESULT = {
    "sequences": 1300,
    "models": {"ape": model(28.126, 20.0, missing=3), "rope": model(5.0, 5.04)},
}


def test_the_table_has_the_papers_numbers_where_there_are_some():
    table = swap.table(RESULT)
    assert table.rows == [
        ["APE", "ours", "28.13", "20.00", "8.13"],
        ["APE", "paper", "28.81", "20.74", "8.07"],
        ["RoPE", "ours", "5.00", "5.04", "-0.04"],
    ]
    assert table.title.endswith("on 1,300 training sequences")
    assert table.notes == ["<sep> missing in the swapped order, of 1,200: APE 3; RoPE 0."]


def test_the_figure_has_two_bars_for_each_model_and_the_drop_below():
    (figure,) = swap.plot(RESULT).values()
    (axis,) = figure.axes
    assert [round(bar.get_height(), 2) for bar in axis.patches] == [28.13, 20.0, 5.0, 5.04]
    assert [bar.get_alpha() for bar in axis.patches] == [1.0, 0.55] * 2
    # A drop that rounds to nothing has no sign.
    drops = [tick.get_text().strip() for tick in axis.get_xticklabels()]
    assert drops == ["APE: drop 8.1", "RoPE: drop 0.0"]
