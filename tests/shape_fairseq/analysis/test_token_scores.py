"""The heat map of figure 4, and what cannot be compared."""

import pytest

from shape_fairseq.analysis import token_scores
from shape_fairseq.errors import UserError

RESULT = {
    "setting": "extrapolate",
    "models": ["ape", "shape"],
    "positions": ["1–4", "5–8"],
    "untrained_positions": [False, True],
    "frequencies": ["unseen", "1–9"],
    "cells": [
        [{"tokens": 0, "ratio": None}, {"tokens": 3, "ratio": 1.0}],
        [{"tokens": 8, "ratio": 0.125}, {"tokens": 2, "ratio": 0.5}],
    ],
}


def test_every_cell_has_its_ratio_and_its_number_of_tokens():
    (figure,) = token_scores.plot(RESULT).values()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["–", "1.00\nn=3", "0.12\nn=8", "0.50\nn=2", "no training data →"]
    title = "EXTRAPOLATE: where SHAPE scores gold tokens higher than APE"
    assert figure.axes[0].get_title() == title


def test_a_line_marks_where_training_ended():
    axis = token_scores.plot(RESULT)["token-scores"].axes[0]
    assert [list(line.get_xdata()) for line in axis.lines] == [[1, 1]]
    trained = RESULT | {"untrained_positions": [False, False]}
    assert not token_scores.plot(trained)["token-scores"].axes[0].lines


@pytest.mark.parametrize("labels", [["ape"], ["ape", "shape", "rpe"]])
def test_two_models_are_compared_and_neither_more_nor_fewer(tmp_path, labels):
    models = [f"{label}={tmp_path / label}" for label in labels]
    for label in labels:
        (tmp_path / label).touch()
    with pytest.raises(UserError, match=f"two models are compared, .*; {len(labels)} given"):
        token_scores.main([*models, "--data", str(tmp_path), "--out", str(tmp_path)])


def test_two_checkpoints_with_one_label_are_refused(tmp_path):
    with pytest.raises(UserError, match="two checkpoints have the same label"):
        token_scores.main(["ape=a", "APE=b", "--data", str(tmp_path), "--out", str(tmp_path)])
