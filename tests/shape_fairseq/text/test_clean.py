import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.text import clean


@pytest.mark.parametrize("character", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_other_line_breaks_become_a_space(character):
    text, repair = clean.single_line(f"one{character}two")
    assert text == "one two" and repair == "line break inside a line"
    assert len(text.splitlines()) == 1


def test_crlf_loses_its_cr_only():
    assert clean.single_line("one two\r") == ("one two", "CR LF line end")


def test_ordinary_text_is_untouched():
    text = "  Grüße,\u00a0 «Welt»\t!"
    assert clean.single_line(text) == (text, None)


def test_decode_tells_invalid_utf8():
    assert clean.decode("ä".encode()) == "ä"
    assert clean.decode(b"\xff\xfe") is None


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (1, 80, None),
        (80, 1, None),
        (81, 3, "longer than 80 tokens"),
        (3, 81, "longer than 80 tokens"),
        (0, 3, "empty on one side"),
        (3, 0, "empty on one side"),
        (0, 0, "empty on both sides"),
    ],
)
def test_pairs_of_1_to_80_tokens_are_kept(source, target, reason):
    assert clean.reason_to_drop(source, target, 80) == reason


def test_clean_corpus_keeps_every_line(tmp_path, write_text, lines):
    prefix = write_text(tmp_path / "raw", ["a\u2028b", "", "c\r"], ["x", "y", "z"])
    assert clean.clean_corpus(prefix, tmp_path / "out", ("en", "de")) == 2
    assert lines(tmp_path / "out.en") == ["a b", "", "c"]
    assert lines(tmp_path / "out.de") == ["x", "y", "z"]


def test_clean_corpus_names_the_line_of_invalid_utf8(tmp_path, write_text):
    prefix = write_text(tmp_path / "raw", ["a", "b"], ["x", b"\xff"])
    with pytest.raises(UserError, match=r"raw\.de line 2 is not valid UTF-8"):
        clean.clean_corpus(prefix, tmp_path / "out", ("en", "de"))
