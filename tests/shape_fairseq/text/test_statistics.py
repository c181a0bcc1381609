import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shape_fairseq.errors import UserError
from shape_fairseq.text.statistics import bars, describe, percentile, share_longer


@given(st.lists(st.integers(0, 60), min_size=1), st.integers(1, 100))
def test_percentile_is_the_nearest_rank(lengths, percent):
    rank = -(-percent * len(lengths) // 100)
    assert percentile(Counter(lengths), percent) == sorted(lengths)[rank - 1]


def test_describe():
    result = describe(Counter({1: 2, 4: 2}))
    assert (result["lines"], result["tokens"], result["mean"]) == (4, 10, 2.5)
    assert (result["min"], result["max"], result["percentiles"]["50"]) == (1, 4, 1)
    assert result["lengths"] == {"1": 2, "4": 2}


def test_nothing_to_describe():
    with pytest.raises(UserError, match="no lines"):
        describe(Counter())


def test_bars_and_share():
    lengths = {"1": 2, "4": 2, "7": 1}
    assert list(bars(lengths, 5)) == [(0, 4), (5, 1)]
    assert share_longer(lengths, 4) == 0.2


def test_command_writes_json_and_figure(tmp_path, write_text, commands):
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    for setting in ("vanilla", "extrapolate", "interpolate"):
        write_text(tmp_path / "text" / setting / "train", ["a b", "a b c"], ["x", "y"])
    run = commands.module(
        "shape_fairseq.text.statistics",
        "--input",
        tmp_path / "text",
        "--json",
        tmp_path / "s.json",
        "--figure",
        tmp_path / "lengths.png",
    )
    assert run.returncode == 0, run.stderr
    record = json.loads((tmp_path / "s.json").read_text())
    statistics = record["settings"]
    assert record["format"] == 1
    assert statistics["interpolate"]["train"]["pairs"] == 2
    assert statistics["vanilla"]["train"]["en"]["mean"] == 2.5
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_is_one_line(tmp_path, write_text, commands):
    write_text(tmp_path / "text/vanilla/train", ["a"], ["x"])
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "matplotlib.py").write_text("raise ImportError")
    environment = commands.environment()
    environment["PYTHONPATH"] = f"{blocked}:{environment['PYTHONPATH']}"
    run = commands.module(
        "shape_fairseq.text.statistics",
        "--input",
        tmp_path / "text",
        "--json",
        tmp_path / "s.json",
        "--figure",
        tmp_path / "lengths.png",
        env=environment,
    )
    assert run.returncode == 1
    assert run.stderr == "error: the figure needs matplotlib: pip install matplotlib\n"
