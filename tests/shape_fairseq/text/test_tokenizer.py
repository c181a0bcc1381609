import gzip
import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from shape_fairseq.errors import UserError
from shape_fairseq.text.tokenizer import FastMosesTokenizer, tokenize, tokenize_corpus

LANGS = ("en", "de")
REFERENCE = {lang: MosesTokenizer(lang) for lang in LANGS}
FAST = {lang: FastMosesTokenizer(lang) for lang in LANGS}
texts = st.lists(
    st.sampled_from(["Dr.", "U.S.", "e.g.", "No.", "5", "ä.", "...", "well-known", "it's", "<sep>"])
    | st.text(max_size=8)
).map(" ".join)


@pytest.mark.parametrize("lang", LANGS)
@settings(deadline=None)
@given(texts)
def test_same_tokens_as_sacremoses(lang, text):
    assert FAST[lang].tokenize(text) == REFERENCE[lang].tokenize(text)


@pytest.mark.parametrize("lang", LANGS)
def test_same_tokens_as_sacremoses_on_real_text(lang, multi30k):
    with gzip.open(multi30k / f"train.{lang}.gz", "rt", encoding="utf-8", newline="\n") as text:
        sentences = list(islice(text, 3000))
    fast = [FAST[lang].tokenize(sentence) for sentence in sentences]
    assert fast == [REFERENCE[lang].tokenize(sentence) for sentence in sentences]


def test_moses_rules_without_dash_splitting():
    assert tokenize('A well-known "test", isn\'t it?', "en") == (
        "A well-known &quot; test &quot; , isn &apos;t it ?"
    )


def test_literal_sep_cannot_survive_as_a_token():
    assert tokenize("a <sep> b", "en") == "a &lt; sep &gt; b"


def test_bad_lines_never_shift_the_sides(tmp_path, write_text, lines):
    source = ["one", "two", b"\xff bad", "three\u2028and\x85more", "", "four\r", "<sep>", "a " * 81]
    target = ["eins", "", "zwei", "drei", "leer", "vier\r", "<sep>", "lang"]
    prefix = write_text(tmp_path / "raw", source, target)
    counts = tokenize_corpus([prefix], tmp_path / "out", LANGS, max_tokens=80)
    assert lines(tmp_path / "out.en") == ["one", "three and more", "four", "&lt; sep &gt;"]
    assert lines(tmp_path / "out.de") == ["eins", "drei", "vier", "&lt; sep &gt;"]
    assert counts == {
        "pairs": 8,
        "kept": 4,
        "dropped: not valid UTF-8": 1,
        "dropped: empty on one side": 2,
        "dropped: longer than 80 tokens": 1,
        "repaired: line break inside a line": 1,
        "repaired: CR LF line end": 2,
    }


def test_evaluation_text_keeps_every_pair(tmp_path, write_text, lines):
    prefix = write_text(tmp_path / "raw", ["one", "", "a " * 100], ["eins", "zwei", "drei"])
    counts = tokenize_corpus([prefix], tmp_path / "out", LANGS, max_tokens=None)
    assert len(lines(tmp_path / "out.en")) == len(lines(tmp_path / "out.de")) == 3
    assert counts["kept although empty on one side"] == 1


def test_invalid_utf8_in_evaluation_text_names_its_line(tmp_path, write_text):
    source = ["fine"] * 3000 + [b"\xff"]
    prefix = write_text(tmp_path / "raw", source, ["gut"] * 3001)
    with pytest.raises(UserError, match="raw: line 3,001 is not valid UTF-8"):
        tokenize_corpus([prefix], tmp_path / "out", LANGS, max_tokens=None)
    assert not list(tmp_path.glob("out*"))


def test_each_corpus_is_checked_before_they_are_joined(tmp_path, write_text):
    # The totals are equal, so the corpora would only be found shifted by looking at each one.
    first = write_text(tmp_path / "first", ["a", "b"], ["x"])
    second = write_text(tmp_path / "second", ["c"], ["y", "z"])
    with pytest.raises(UserError, match=re.escape("first.de ends after 1 lines")):
        tokenize_corpus([first, second], tmp_path / "out", LANGS, max_tokens=80)


def test_corpora_are_joined_in_order_on_any_number_of_workers(tmp_path, write_text):
    many = [f"word{number}" for number in range(7000)]
    corpora = [
        write_text(tmp_path / "a", many, many),
        write_text(tmp_path / "b", ["end"], ["Ende"]),
    ]
    for workers in (1, 3):
        tokenize_corpus(corpora, tmp_path / f"out{workers}", LANGS, 80, workers)
    expected = "\n".join([*many, "Ende", ""])
    assert [(tmp_path / f"out{n}.de").read_text() for n in (1, 3)] == [expected, expected]


def test_command_reports_what_it_did(tmp_path, write_text, commands):
    prefix = write_text(tmp_path / "raw", ["one", "two"], ["eins", ""])
    run = commands.module(
        "shape_fairseq.text.tokenizer",
        "--input",
        prefix,
        "--output",
        tmp_path / "out",
        "--max-tokens",
        80,
    )
    assert run.returncode == 0, run.stderr
    assert "1 dropped: empty on one side" in run.stderr and "1 kept" in run.stderr
