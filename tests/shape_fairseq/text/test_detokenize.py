import gzip

import pytest

from shape_fairseq.text.detokenize import detokenize, detokenize_joined
from shape_fairseq.text.tokenizer import tokenize


@pytest.mark.parametrize(
    "text", ["She said: \"it's 5.30, isn't it?\"", "A & B < C | D [e]", "well-known (very) things"]
)
def test_round_trip(text):
    assert detokenize(tokenize(text, "en"), "en") == text


def test_bpe_and_archive_hyphens_are_removed():
    assert detokenize("ein be@@ kannt@@ es E ##AT##-##AT## Book .", "de") == "ein bekanntes E-Book."


def test_rules_do_not_reach_across_sep():
    # An open quote in the first sentence must not turn the quote of the second one around.
    joined = "&quot; a <sep> &quot; b &quot;"
    assert detokenize_joined(joined, "en") == ['"a', '"b"']


def test_command_splits_or_keeps_the_boundaries(commands):
    joined = "Ha@@ llo , Welt . <sep> Ja .\nNe@@ in .\n"
    kept = commands.module("shape_fairseq.text.detokenize", stdin=joined)
    assert kept.stdout == "Hallo, Welt. <sep> Ja.\nNein.\n", kept.stderr
    split = commands.module("shape_fairseq.text.detokenize", "--split", stdin=joined)
    assert split.stdout == "Hallo, Welt.\nJa.\nNein.\n"


# What Moses loses on these captions: doubled and trailing spaces, unusual quotes and slashes.
@pytest.mark.parametrize(("lang", "least"), [("en", 0.99), ("de", 0.98)])
def test_share_of_real_lines_that_survive(lang, least, multi30k, record_property, capsys):
    survived = total = 0
    for name in ("train", "val", "test_2016_flickr"):
        with gzip.open(
            multi30k / f"{name}.{lang}.gz", "rt", encoding="utf-8", newline="\n"
        ) as text:
            for line in text:
                wanted = " ".join(line.split())
                survived += detokenize(tokenize(line, lang), lang) == wanted
                total += 1
    record_property("share", survived / total)
    with capsys.disabled():
        print(f"\n{lang}: {survived:,} of {total:,} lines survive ({survived / total:.2%})")
    assert survived / total >= least
