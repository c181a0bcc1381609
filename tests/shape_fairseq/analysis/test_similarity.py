"""The figures of shifted states, and what is refused before a model is loaded."""

import pytest

from shape_fairseq.analysis import similarity
from shape_fairseq.errors import UserError

MATRIX = [[1.0, 0.254], [0.254, 1.0]]


def result(layers: int, sequences: int) -> dict:
    model = {"layers": [MATRIX] * layers, "sequences": [[MATRIX] * layers] * sequences}
    numbers = [100 + number for number in range(sequences)]
    return {"offsets": [0, 50], "sequence_ids": numbers, "models": {"ape": model, "shape": model}}


def titles(figure) -> list[str]:
    return [axis.get_title() for axis in figure.axes if axis.axison and axis.get_title()]


def test_a_row_is_a_model_and_a_column_a_layer():
    figure = similarity.plot(result(layers=3, sequences=1))["similarity"]
    assert titles(figure) == ["embeddings", "layer 1", "layer 2"] * 2
    first, *_, colours = figure.axes
    assert [text.get_text() for text in first.texts] == ["1.00", "0.25", "0.25", "1.00"]
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["0", "50"]
    assert first.get_ylabel().startswith("APE") and colours.get_ylabel() == "cosine similarity"
    assert first.yaxis_inverted()  # the first offset is at the top, as in a matrix


def test_sequences_that_do_not_fit_into_a_row_go_on_in_another():
    figure = similarity.plot(result(layers=1, sequences=7))["similarity-sequences"]
    first, rest = [f"#{number}" for number in range(100, 105)], ["#105", "#106"]
    assert titles(figure) == first * 2 + rest * 2


def test_one_offset_is_nothing_to_compare(tmp_path):
    arguments = ["ape=a.pt", "--data", str(tmp_path), "--out", str(tmp_path), "--offsets"]
    with pytest.raises(UserError, match="--offsets needs at least two different numbers"):
        similarity.main([*arguments, "7", "7"])
    with pytest.raises(UserError, match=r"the checkpoint a\.pt is missing"):
        similarity.main([*arguments, "0", "7"])
