import gzip
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE

from shape_fairseq.errors import UserError
from shape_fairseq.text import bpe
from shape_fairseq.text.tokenizer import tokenize

TEXT = ["low lower lowest", "new newer newest", "wide wider widest", "Grüße größer größte"] * 5


@pytest.fixture
def codes(tmp_path):
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    bpe.learn([tmp_path / "text"], 20, tmp_path / "codes")
    return tmp_path / "codes"


def test_learning_gives_the_asked_number_of_merges(codes, lines):
    assert len(lines(codes)) == 20
    assert all(len(line.split(" ")) == 3 for line in lines(codes))


def test_order_of_the_text_does_not_matter(tmp_path, codes):
    (tmp_path / "other").write_text("".join(f"{line}\n" for line in TEXT[::-1]), encoding="utf-8")
    bpe.learn([tmp_path / "other"], 20, tmp_path / "other_codes")
    assert (tmp_path / "other_codes").read_bytes() == codes.read_bytes()


def test_learning_from_nothing_is_an_error(tmp_path):
    (tmp_path / "empty").write_bytes(b"\n\n")
    with pytest.raises(UserError, match="no words"):
        bpe.learn([tmp_path / "empty"], 10, tmp_path / "codes")


def test_empty_lines_and_unseen_letters(tmp_path, codes, lines):
    (tmp_path / "text2").write_text("low\n\nнизкий 日本\n", encoding="utf-8")
    bpe.apply(codes, tmp_path / "text2", tmp_path / "out")
    encoded = lines(tmp_path / "out")
    assert [bpe.remove(line) for line in encoded] == ["low", "", "низкий 日本"]
    assert encoded[1] == ""


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda w: not w.isspace()))
)
def test_removing_is_the_inverse_of_splitting(words):
    line = " ".join("".join(words).split()).replace("@@", "")
    split = " ".join("@@ ".join(word) for word in line.split())
    assert bpe.remove(split) == line


def test_remove_joins_a_continuation_at_the_end():
    assert bpe.remove("lo@@ w ne@@") == "low ne"


@pytest.mark.parametrize("content", ["#version: 0.2\nl o\n", "l o 1\nbroken\n"])
def test_other_codes_are_refused(tmp_path, content):
    (tmp_path / "codes").write_text(content)
    with pytest.raises(UserError, match="not fastBPE codes"):
        bpe.check_codes(tmp_path / "codes")


def test_real_text_survives_and_equals_subword_nmt(tmp_path, multi30k, lines):
    for lang in ("en", "de"):
        with gzip.open(multi30k / f"train.{lang}.gz", "rt", encoding="utf-8", newline="\n") as text:
            tokenized = [tokenize(line, lang) for line in islice(text, 4000)]
        (tmp_path / f"train.{lang}").write_text("\n".join([*tokenized, ""]), encoding="utf-8")
    codes = tmp_path / "codes"
    bpe.learn([tmp_path / "train.en", tmp_path / "train.de"], 2000, codes)
    pairs = [line.rsplit(" ", 1)[0] for line in lines(codes)]
    (tmp_path / "subword_nmt_codes").write_text("\n".join(["#version: 0.2", *pairs, ""]))
    with open(tmp_path / "subword_nmt_codes", encoding="utf-8") as file:
        reference = BPE(file)
    for lang in ("en", "de"):
        bpe.apply(codes, tmp_path / f"train.{lang}", tmp_path / f"bpe.{lang}")
        tokenized, encoded = lines(tmp_path / f"train.{lang}"), lines(tmp_path / f"bpe.{lang}")
        assert [bpe.remove(line) for line in encoded] == tokenized
        assert encoded == [reference.process_line(line) for line in tokenized]
        assert any("@@" in line for line in encoded)


def test_command_line(tmp_path, commands, codes):
    (tmp_path / "in").write_text("lowest\n")
    run = commands.module(
        "shape_fairseq.text.bpe",
        "apply",
        "--codes",
        codes,
        "--input",
        tmp_path / "in",
        "--output",
        tmp_path / "out",
    )
    assert run.returncode == 0, run.stderr
    assert bpe.remove((tmp_path / "out" / "in").read_text().strip()) == "lowest"
    again = commands.module(
        "shape_fairseq.text.bpe",
        "apply",
        "--codes",
        codes,
        "--input",
        tmp_path / "in",
        "--output",
        tmp_path / "out",
    )
    assert again.returncode == 1
    assert again.stderr.startswith("error: ") and "exists already" in again.stderr
