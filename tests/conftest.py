"""What tests of several folders share: commands, Multi30k, and which tests are slow."""

import gzip
import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests import processes

# Triton reads it when something imports it: without a GPU its kernels run in its interpreter.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

SLOW_FOLDERS = {"end_to_end", "recipes"}  # they train models, or start commands that do


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders as slow; elsewhere a test that takes several seconds says so itself."""
    for item in items:
        if SLOW_FOLDERS & set(item.path.relative_to(processes.REPOSITORY).parts):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    folder = Path(
        os.environ.get("SHAPE_MULTI30K", processes.REPOSITORY.parent / "shared" / "multi30k")
    )
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


class Commands:
    """Runs the commands of data_prep as a user would."""

    def environment(self, **variables: object) -> dict[str, str]:
        """What the person who runs the tests has set for data_prep does not reach it."""
        return processes.environment(only=set(os.environ) - {"RAW", "LOCK"}, **variables)

    def module(self, name: str, *arguments: object, **options) -> subprocess.CompletedProcess:
        """`python -m NAME ...`"""
        options = {"env": self.environment(), "cwd": Path.cwd()} | options
        return processes.run(sys.executable, "-m", name, *arguments, **options)

    def script(self, name: str, out: Path, **variables: object) -> subprocess.CompletedProcess:
        """`bash data_prep/NAME.sh OUT` with environment variables."""
        return processes.run(*self.script_command(name, out), env=self.environment(**variables))

    def script_command(self, name: str, out: Path) -> list[str]:
        return ["bash", str(processes.REPOSITORY / "data_prep" / f"{name}.sh"), str(out)]


@pytest.fixture(scope="session")
def commands() -> Commands:
    return Commands()


@pytest.fixture
def write_text():
    """Write the two sides of a parallel text as bytes, each line ended by a line feed."""

    def write(prefix: Path, source: list, target: list) -> Path:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        for lang, lines in (("en", source), ("de", target)):
            encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
            Path(f"{prefix}.{lang}").write_bytes(b"".join(line + b"\n" for line in encoded))
        return prefix

    return write


@pytest.fixture
def lines():
    """The lines of a file, split at line feeds only."""
    return lambda path: Path(path).read_bytes().decode().split("\n")[:-1]
