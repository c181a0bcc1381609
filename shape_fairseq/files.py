"""Lines that only end at a line feed, and outputs that appear only when they are complete."""

import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from tqdm import tqdm

from .errors import UserError

PARTIAL = ".partial"


def open_text(path: Path) -> BinaryIO:
    """Open a plain or gzip file as bytes: `path`, or `path.gz` where only that exists."""
    path = Path(path)
    packed = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    if path.suffix != ".gz" and path.exists():
        return open(path, "rb")
    if packed.exists():
        return cast(BinaryIO, gzip.open(packed, "rb"))
    raise UserError(f"{path} is missing")


@contextmanager
def open_checked(path: Path) -> Iterator[BinaryIO]:
    """Open a text; one that is packed and damaged is named when its damage is met."""
    with open_text(path) as file:
        try:
            yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path} is damaged ({error}): download or pack it again") from error


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, split at the line feed and at nothing else."""
    # Binary mode, because text mode also breaks lines at a lone carriage return, and
    # str.splitlines at U+2028 and others: either would shift source against target.
    with open_checked(path) as lines:
        for line in lines:
            yield line.removesuffix(b"\n")


def read_pairs(source: Path, target: Path) -> Iterator[tuple[bytes, bytes]]:
    """The line pairs of two files, which must have equally many lines."""
    pairs = zip_longest(read_lines(source), read_lines(target))
    for number, (source_line, target_line) in enumerate(pairs, start=1):
        if source_line is None or target_line is None:
            shorter, longer = (source, target) if source_line is None else (target, source)
            raise UserError(
                f"{shorter} ends after {number - 1:,} lines but {longer} goes on:"
                " a parallel text needs equally many lines on both sides"
            )
        yield source_line, target_line


def count_lines(path: Path) -> int:
    """How many lines a file has."""
    with open_checked(path) as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        lines, last = 0, b"\n"
        for last in blocks:
            lines += last.count(b"\n")
        return lines + (not last.endswith(b"\n"))


def progress_bar(title: str, path: Path) -> tqdm:
    """A progress bar over the lines of a file, shown on terminals only."""
    return tqdm(
        desc=title, total=count_lines(path), unit="line", unit_scale=True, disable=None, leave=False
    )


def refuse_existing(path: Path) -> None:
    """Finished work is never overwritten: stop when the output is there already."""
    if Path(path).exists():
        raise UserError(f"{path} exists already: delete it first or choose another output")


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def atomic_outputs(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Open files for writing that get their names together, and only when all are complete."""
    for path in paths:
        refuse_existing(path)
    partials = [Path(f"{path}{PARTIAL}") for path in paths]
    try:
        with ExitStack() as stack:
            files: list[BinaryIO] = []
            for partial in partials:
                partial.parent.mkdir(parents=True, exist_ok=True)
                files.append(stack.enter_context(open(partial, "wb")))
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        for partial in partials:
            partial.unlink(missing_ok=True)
        raise
    for partial, path in zip(partials, paths, strict=True):
        os.replace(partial, path)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A folder to fill that gets its name, with everything in it, only when it is complete."""
    refuse_existing(path)
    partial = Path(f"{path}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        for file in partial.iterdir():
            with open(file, "rb") as written:
                os.fsync(written.fileno())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    os.replace(partial, path)
