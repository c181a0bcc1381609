"""The files of an analysis: whole, in order, and read with care."""

import json
import os
from pathlib import Path

import pytest

from shape_fairseq.analysis import base, figures, length_bleu, similarity
from shape_fairseq.errors import UserError


@pytest.fixture
def drawn():
    """The figures of an analysis."""
    figure, _ = figures.subplots()
    return {"swap": figure}


def test_the_json_is_renamed_last(tmp_path, drawn, monkeypatch):
    renamed, replace = [], os.replace

    def noted(source, target):
        renamed.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr("os.replace", noted)
    base.publish(tmp_path, "swap", {}, {}, drawn)
    assert renamed == ["swap.png", "swap.svg", "swap.json"]


def test_figures_of_a_killed_run_do_not_stand_in_the_way(tmp_path, drawn):
    (tmp_path / "swap.png").write_bytes(b"of a run that was killed")
    base.check_new(tmp_path, "swap")
    base.publish(tmp_path, "swap", {}, {}, drawn)
    assert (tmp_path / "swap.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="exists already"):
        base.check_new(tmp_path, "swap")


def test_a_result_without_a_field_is_refused_with_its_name(tmp_path):
    path = tmp_path / "token-scores.json"
    base.publish(tmp_path, "token-scores", {}, {"models": ["ape", "shape"]}, {})
    with pytest.raises(UserError, match=r"is missing\).*run shape-fairseq token-scores again"):
        base.read(path)
    whole = path.read_text()
    path.write_text(whole[:-20])
    with pytest.raises(UserError, match="damaged"):
        base.read(path)
    path.write_text(json.dumps(json.loads(whole) | {"format": 99}))
    with pytest.raises(UserError, match="reads up to 1: update it"):
        base.read(path)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, "it has no models"),
        ({"ape": {"mean": 1, "sequences": [[]]}}, r"models\.ape\.sequences must not be empty"),
        ({"ape": {"mean": 1, "sequences": [[[[1]]]]}}, "must be matrices of offsets"),
        ({"ape": {"mean": 1, "sequences": [[[[1, 1]]]]}}, "must be matrices of offsets"),
    ],
)
def test_matrices_of_another_shape_are_refused(tmp_path, models, message):
    base.publish(tmp_path, "similarity", {}, {"offsets": [0, 9], "models": models}, {})
    with pytest.raises(UserError, match=message):
        base.read(tmp_path / "similarity.json")


def refused(capsys, main, *arguments) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1
    return error


def test_a_mistake_in_the_options_is_one_helpful_line(capsys, tmp_path):
    options = ("--out", tmp_path, "--data", tmp_path)
    error = refused(capsys, similarity.main, *options, "--offsets", 0, 10, "ape=FILE")
    assert "'ape=FILE' is no offset: give the models before --offsets" in error
    error = refused(capsys, similarity.main, *options, "ape=FILE", "--offsets", 0, -5)
    assert "-5" in error
    error = refused(capsys, similarity.main, *options, "ape")
    assert "'ape' is not LABEL=CHECKPOINT" in error
    assert "--width" in refused(capsys, length_bleu.main, *options, "r.json", "--width", 0)
