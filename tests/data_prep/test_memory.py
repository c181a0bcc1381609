"""Every stage streams: four times the text needs no more memory."""

import shutil
from pathlib import Path

import pytest

from benchmarks.data_prep import LANGS, peak_memory, stages

PAIRS = 6000
# Wide gaps make a big text of few words, so that it takes a moment and not a minute.
LINE = b"Ein" + b" " * 2000 + b"Hund schl\xc3\xa4ft .\n"


def write(folder: Path, name: str, pairs: int) -> None:
    for lang in LANGS:
        (folder / f"{name}.{lang}").write_bytes(LINE * pairs)


def peaks(folder: Path, pairs: int) -> dict[str, float]:
    """The peak of each stage in MB; each gets the wide lines, though the tokenizer narrows them."""
    folder.mkdir()
    write(folder, "raw", pairs)
    peaks = {}
    for stage, command in stages(folder, workers=1, merges=10):
        # fairseq's index of a data-bin holds some bytes for each line, and it takes long to start.
        if stage == "binarize":
            continue
        peaks[stage] = peak_memory(*command)
        if stage == "tokenize":
            write(folder / "tok", "train", pairs)
        elif stage == "apply BPE":
            write(folder / "encoded", "train", pairs)
        elif stage == "three settings":
            # Its lines are ten times as wide, so a chunk of them is more than the small text has.
            shutil.rmtree(folder / "text" / "interpolate")
    return peaks


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    small, big = peaks(tmp_path / "small", PAIRS), peaks(tmp_path / "big", 4 * PAIRS)
    growth = {stage: big[stage] - small[stage] for stage in small}
    assert len(growth) == 7
    # Each side of the text grows by 36 MB.
    assert growth == pytest.approx(dict.fromkeys(growth, 0), abs=15)
