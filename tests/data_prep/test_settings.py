import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.settings import (
    extrapolate,
    interpolate,
    make_setting,
    make_swapped,
    sample,
    swap,
)
from shape_fairseq.errors import UserError
from shape_fairseq.text.separator import split_joined

LANGS = ("en", "de")
sentences = st.lists(st.text("abc @ü", max_size=12).map(lambda text: " ".join(text.split())))


def test_extrapolate_looks_at_both_sides():
    pairs = [("a " * 50, "b"), ("a " * 51, "b"), ("a", "b " * 50), ("a", "b " * 51)]
    assert list(extrapolate(pairs, 50)) == [pairs[0], pairs[2]]


@given(sentences, st.integers(1, 12))
def test_interpolate_loses_nothing(texts, group_size):
    pairs = [(text, text.upper()) for text in texts]
    joined = list(interpolate(pairs, group_size))
    assert [s for source, _ in joined for s in split_joined(source)] == texts
    assert [t for _, target in joined for t in split_joined(target)] == [t.upper() for t in texts]
    assert len(joined) == -(-len(texts) // group_size)


def test_last_incomplete_group_is_a_shorter_sequence():
    assert list(interpolate([("a", "x"), ("b", "y"), ("c", "z")], 2)) == [
        ("a <sep> b", "x <sep> y"),
        ("c", "z"),
    ]


def test_literal_sep_is_refused_with_its_place():
    pairs = [("a", "x"), ("b", "y"), ("c <sep> d", "z")]
    with pytest.raises(UserError, match="pair 3 contains <sep> already"):
        list(interpolate(pairs, 2))


def test_split_joined_understands_what_models_write():
    assert split_joined("a <sep> <sep> b <sep>") == ["a", "", "b", ""]
    assert split_joined("a<sep>b") == ["a<sep>b"]
    assert split_joined("") == [""]


def test_swap_moves_the_first_sentence_to_the_end():
    numbers = " <sep> ".join(f"X{n}" for n in range(1, 11))
    assert swap(numbers) == " <sep> ".join(f"X{n}" for n in [*range(2, 11), 1])
    assert swap("alone") == "alone"


@given(st.integers(0, 200), st.integers(1, 50), st.integers(0, 5))
def test_sample_is_ordered_distinct_and_seeded(total, size, seed):
    pairs = [(f"{n:03}", "x") for n in range(total)]
    chosen = sample(iter(pairs), size, seed)
    assert chosen == sorted(set(chosen)) and len(chosen) == min(size, total)
    assert chosen == sample(iter(pairs), size, seed)


def test_sample_is_uniform():
    chosen = [
        int(s) for seed in range(300) for s, _ in sample([(f"{n}", "") for n in range(20)], 5, seed)
    ]
    counts = [chosen.count(n) for n in range(20)]
    assert min(counts) > 40 and max(counts) < 115  # 75 expected, four standard deviations


@pytest.fixture
def encoded(tmp_path, write_text):
    generator = random.Random(1)
    for name, size in (("train", 1003), ("valid", 25), ("test", 20)):
        lengths = [int(generator.random() * 80) + 1 for _ in range(size)]
        source = [" ".join([f"{name}{n}"] + ["a"] * (k - 1)) for n, k in enumerate(lengths)]
        write_text(tmp_path / "bpe" / name, source, source)
    return tmp_path / "bpe"


def test_only_training_text_is_filtered(tmp_path, encoded, lines):
    make_setting("extrapolate", encoded, tmp_path / "out", LANGS, limit=50, group_size=10)
    train = lines(tmp_path / "out" / "train.en")
    expected = [line for line in lines(encoded / "train.en") if len(line.split()) <= 50]
    assert train == expected and 0 < len(train) < 1003
    for name in ("valid", "test"):
        assert lines(tmp_path / "out" / f"{name}.de") == lines(encoded / f"{name}.de")


def test_command_makes_all_settings(tmp_path, encoded, lines, commands):
    run = commands.module(
        "data_prep.settings", "all", "--input", encoded, "--output", tmp_path / "out"
    )
    assert run.returncode == 0, run.stderr
    assert "1,003 pairs joined to 101 sequences, the last one of 3 pairs" in run.stderr
    assert lines(tmp_path / "out/vanilla/train.en") == lines(encoded / "train.en")
    for name, sequences in (("train", 101), ("valid", 3), ("test", 2)):
        joined = lines(tmp_path / f"out/interpolate/{name}.en")
        assert len(joined) == sequences
        assert [s for line in joined for s in split_joined(line)] == lines(encoded / f"{name}.en")


def test_swapped_set_takes_complete_groups_only(tmp_path, encoded, lines):
    make_setting("interpolate", encoded, tmp_path / "out", LANGS, limit=50, group_size=10)
    make_swapped(tmp_path / "out/train", tmp_path / "swapped", LANGS, 1000, 10, seed=1)
    original = lines(tmp_path / "swapped/original.de")
    assert original == lines(tmp_path / "out/train.de")[:100]
    assert lines(tmp_path / "swapped/swapped.de") == [swap(line) for line in original]


@pytest.mark.parametrize(
    ("bad", "message"),
    [(b"\xff", "not valid UTF-8"), ("a\rb", "line break"), ("a\u2028b", "line break")],
)
def test_bad_lines_are_named(tmp_path, write_text, commands, bad, message):
    write_text(tmp_path / "bpe" / "train", ["a", bad], ["x", "y"])
    run = commands.module(
        "data_prep.settings", "vanilla", "--input", tmp_path / "bpe", "--output", tmp_path / "o"
    )
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert "train.en line 2" in run.stderr and message in run.stderr
    assert not (tmp_path / "o").exists()


def test_group_size_zero_is_refused(tmp_path, commands):
    run = commands.module(
        "data_prep.settings",
        "all",
        "--input",
        tmp_path,
        "--output",
        tmp_path / "o",
        "--group-size",
        0,
    )
    assert run.returncode == 2 and "at least 1" in run.stderr
