import logging
import subprocess

import pytest

from data_prep import binarize

LANGS = ("en", "de")


@pytest.mark.slow
def test_data_bins_equal_those_of_fairseq_preprocess(tmp_path, write_text, commands):
    text, ours, theirs = tmp_path / "text", tmp_path / "ours", tmp_path / "theirs"
    english = ["a b c", "", "unknown a  b", "<unk> é 日本"] * 50
    german = ["x y", "z", "x 𝒳 fremd", "y z z z z"] * 50
    for name in ("train", "test", "valid"):
        write_text(text / name, english, german)
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("".join(f"{symbol} 9\n" for symbol in "abcxyzé"), encoding="utf-8")
    binarize.binarize(text, dictionary, ours, LANGS, workers=2)
    subsets = [f"--{name}pref={text / name}" for name in ("train", "valid", "test")]
    languages = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    subprocess.run(
        ["fairseq-preprocess", *languages, *subsets, "--srcdict", dictionary, "--destdir", theirs],
        env=commands.environment(),
        check=True,
        capture_output=True,
    )
    made = {path.name: path.read_bytes() for path in theirs.iterdir() if path.suffix != ".log"}
    assert len(made) == 14  # three subsets of two languages in two files, and the dictionaries
    assert made == {name: (ours / name).read_bytes() for name in made}


def test_unknown_words_are_reported(tmp_path, write_text, caplog):
    (tmp_path / "dict.txt").write_text("a 1\n")
    write_text(tmp_path / "text" / "train", ["a b"], ["a a"])
    with caplog.at_level(logging.INFO, logger="fairseq_cli.preprocess"):
        binarize.binarize(
            tmp_path / "text", tmp_path / "dict.txt", tmp_path / "out", LANGS, workers=1
        )
    # One of three symbols: the end of the sentence counts.
    assert "33.3% replaced" in caplog.text and "0.0% replaced" in caplog.text
