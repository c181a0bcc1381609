"""What tests of several folders share: finding Multi30k, which is not part of this project."""

import gzip
import os
from itertools import islice
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def multi30k() -> Path:
    folder = Path(os.environ.get("SHAPE_MULTI30K", TOP.parent / "shared" / "multi30k"))
    if not (folder / "train.en.gz").exists():
        pytest.skip("Multi30k is not here: set SHAPE_MULTI30K to its folder")
    return folder


@pytest.fixture
def first_lines_of_multi30k(multi30k, tmp_path):
    """Write the beginnings of Multi30k's files into a folder, to save time."""

    def write(train: int | None = None, other: int | None = None) -> Path:
        raw = tmp_path / "raw"
        raw.mkdir()
        for path in multi30k.glob("*.gz"):
            wanted = train if path.name.startswith("train") else other
            with gzip.open(path) as text:
                (raw / path.name).write_bytes(gzip.compress(b"".join(islice(text, wanted))))
        return raw

    return write
