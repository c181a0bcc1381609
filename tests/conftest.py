"""What tests of several folders share: running commands, and finding Multi30k."""

import gzip
import os
import subprocess
import sys
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


def environment(**variables: object) -> dict[str, str]:
    """The environment of a command: this Python and this project first."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("RAW", "LOCK")}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited["PATH"]])
    chosen = {name: str(value) for name, value in variables.items()}
    return inherited | {"PATH": path, "PYTHON": sys.executable, "PYTHONPATH": str(TOP)} | chosen


class Commands:
    """Runs the commands of data_prep as a user would."""

    environment = staticmethod(environment)

    def module(self, name: str, *arguments: object, **kwargs) -> subprocess.CompletedProcess:
        """`python -m NAME ...`"""
        command = [sys.executable, "-m", name, *map(str, arguments)]
        return self._run(command, **kwargs)

    def script(self, name: str, out: Path, **variables: object) -> subprocess.CompletedProcess:
        """`bash data_prep/NAME.sh OUT` with environment variables."""
        return self._run(self.script_command(name, out), env=environment(**variables))

    def script_command(self, name: str, out: Path) -> list[str]:
        return ["bash", str(TOP / "data_prep" / f"{name}.sh"), str(out)]

    def _run(self, command: list[str], **kwargs) -> subprocess.CompletedProcess:
        kwargs.setdefault("env", environment())
        return subprocess.run(command, capture_output=True, text=True, timeout=600, **kwargs)


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
