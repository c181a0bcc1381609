"""The lengths of sequences, as data_prep noted them or as they are in the text."""

import json

import pytest

from shape_fairseq.analysis import lengths
from shape_fairseq.errors import UserError


def run(data, out) -> dict:
    lengths.main(["--data", str(data), "--out", str(out)])
    assert (out / "lengths.png").stat().st_size > 1000
    return json.loads((out / "lengths.json").read_text())["result"]


@pytest.fixture
def text(data):
    """A data folder with training texts, French to German, and without statistics."""
    for lang in ("fr", "de"):
        (data / "text" / "extrapolate" / f"test.{lang}").write_text("a b\n")
        (data / "text" / "extrapolate" / f"train.{lang}").write_text("a b c\na\n" * 600)
    return data


def test_a_text_without_statistics_is_counted(text, tmp_path, capsys):
    result = run(text, tmp_path / "out")
    assert result["extrapolate"]["train"]["fr"]["lengths"] == {"1": 600, "3": 600}
    assert capsys.readouterr().out == (
        "extrapolate: 1,200 training sequences of 2.0 subwords on average, 3 at most\n"
    )
    with pytest.raises(UserError, match="exists already"):
        run(text, tmp_path / "out")


def test_what_data_prep_has_counted_is_taken(text, tmp_path):
    counted = lengths.compute(text)
    counted["extrapolate"]["train"]["fr"]["max"] = 77
    (text / "statistics").mkdir()
    path = text / "statistics" / "statistics.json"
    path.write_text(json.dumps({"format": 1, "settings": counted}))
    assert run(text, tmp_path / "out") == counted
    path.write_text("{")
    with pytest.raises(UserError, match=r"statistics\.json is not the statistics of data_prep"):
        lengths.compute(text)


def test_a_folder_without_texts_is_refused_in_one_line(text, tmp_path):
    (text / "text" / "extrapolate").rename(text / "text" / "other")
    with pytest.raises(UserError, match=r"has no text/SETTING: run data_prep/prepare_\*\.sh"):
        lengths.compute(text)
    with pytest.raises(UserError, match=r"parameters\.txt is missing"):
        lengths.compute(tmp_path)
