"""Both engines give the same subwords, and the package works without fastBPE."""

import gzip
import subprocess
import sys
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shape_fairseq.errors import UserError
from shape_fairseq.text import bpe
from shape_fairseq.text.bpe_engines import FastBPEEngine, PythonEngine, best_engine
from shape_fairseq.text.bpe_learning import learn_merges

# Few letters make many ties, repetitions and overlaps; the others have two to four bytes, or none
# that a C string could hold.
LETTERS = "aaabbcß日𝒳@\0</w>"


@pytest.fixture(scope="module")
def needs_fastbpe():
    pytest.importorskip("fastBPE", reason="fastBPE is not installed: pip install fastBPE")


def write_codes(path, frequencies, merges):
    learned = islice(learn_merges(frequencies), merges)
    path.write_text("".join(f"{a} {b} 1\n" for a, b in learned), encoding="utf-8", newline="\n")
    return path


def test_merges_go_in_the_order_in_which_they_were_learned(tmp_path):
    (tmp_path / "codes").write_text("b c 1\na b 1\na bc 1\na a 1\nd </w> 1\n")
    engine = PythonEngine(tmp_path / "codes")
    assert engine.apply(["abcd", "abd", "aaaaa", "x", "c"]) == [
        "abc@@ d", "ab@@ d", "aa@@ aa@@ a", "x", "c",
    ]  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(st.text("aaabbcß𝒳", min_size=1, max_size=9), st.integers(1, 9), min_size=1),
    st.lists(st.text(LETTERS, min_size=1, max_size=15), max_size=30),
)
def test_same_subwords_as_fastbpe_on_any_word(needs_fastbpe, tmp_path_factory, known, words):
    codes = write_codes(tmp_path_factory.mktemp("codes") / "codes", known, 30)
    words = [*known, *words]
    assert PythonEngine(codes).apply(words) == FastBPEEngine(codes).apply(words)


def test_same_bytes_as_fastbpe_on_all_of_multi30k(needs_fastbpe, multi30k, tmp_path):
    texts = [gzip.decompress(path.read_bytes()) for path in sorted(multi30k.glob("*.gz"))]
    words, _ = bpe.count_words(texts)
    codes = write_codes(tmp_path / "codes", words, 2000)
    encoded = {
        engine: [bpe.Encoder(codes, engine).encode(text.split(b"\n")) for text in texts]
        for engine in (FastBPEEngine, PythonEngine)
    }
    assert len(texts) == 6 and encoded[PythonEngine] == encoded[FastBPEEngine]
    assert all(b"@@ " in text for text in encoded[PythonEngine])


def test_codes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "codes").write_bytes(b"a b 1\n\xff b 1\n")
    with pytest.raises(UserError, match="codes line 2"):
        bpe.Encoder(tmp_path / "codes", PythonEngine)


def without_packages(names, statement):
    """Run a statement in a new process that cannot import these packages."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({names!r}));"
    return subprocess.run(
        [sys.executable, "-c", blocked + statement], capture_output=True, text=True
    )


def test_without_fastbpe_our_own_engine_takes_its_place(tmp_path):
    codes = write_codes(tmp_path / "codes", {"low": 5, "lower": 3}, 5)
    run = without_packages(
        ["fastBPE"],
        "from pathlib import Path; from shape_fairseq.text import bpe;"
        f"print(bpe.Encoder(Path({str(codes)!r})).encode([b'lowest']).decode())",
    )
    assert run.stdout.strip() == "lo@@ we@@ s@@ t", run.stderr


def test_fastbpe_is_taken_where_it_is_installed(needs_fastbpe):
    assert best_engine() is FastBPEEngine


@pytest.mark.slow
def test_the_models_need_no_package_of_the_text_tools():
    run = without_packages(
        ["fastBPE", "sacremoses", "subword_nmt"],
        "import shape_fairseq.models; print('loaded')",
    )
    assert "loaded" in run.stdout, run.stderr
