import random
import sys
from collections import Counter

import pytest

from benchmarks import data_prep


def test_a_race_takes_the_best_of_turns_and_removes_old_outputs(tmp_path):
    order = []

    def run(name):
        def work():
            assert not (tmp_path / "out").exists()
            (tmp_path / "out").write_text(name)
            order.append(name)

        return work

    times = data_prep.race(run("ours"), run("tool"), 2, tmp_path)
    assert order == ["ours", "tool", "ours", "tool"]
    assert len(times) == 2 and min(times) > 0
    assert data_prep.race(run("ours"), None, 1, tmp_path)[1] == 0


def test_lines_are_repeated_as_often_as_asked(tmp_path):
    (tmp_path / "text").write_bytes(b"a\nb\nc\n")
    data_prep.repeat_lines(tmp_path / "text", tmp_path / "more", 7)
    assert (tmp_path / "more").read_bytes() == b"a\nb\nc\na\nb\nc\na\n"


def test_a_made_up_vocabulary_keeps_real_words_first_and_falls_off():
    real = Counter({"Haus": 9, "Garten": 5, "und": 20})
    words = data_prep.made_up_vocabulary(real, 500)
    assert list(words)[:3] == ["und", "Haus", "Garten"] and len(words) == 500
    assert list(words.values()) == sorted(words.values(), reverse=True)
    assert words == data_prep.made_up_vocabulary(real, 500)
    assert data_prep.made_up_word("Haus", "Garten", random.Random(1))


def test_peak_memory_is_that_of_the_command():
    hungry = "x = bytearray(80_000_000)"
    assert data_prep.peak_memory(sys.executable, "-S", "-c", hungry) > 76
    assert data_prep.peak_memory(sys.executable, "-S", "-c", "") < 76


def test_a_row_tells_the_speed_and_what_wmt_would_take(capsys):
    minutes = data_prep.report("stage", "tool", 600, (2.0, 6.0), 18_000)
    assert minutes == pytest.approx(18_000 * data_prep.WMT_LONGER * 2 / 600 / 60)
    assert "300" in (row := capsys.readouterr().out) and "3.0x" in row
