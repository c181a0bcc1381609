"""Two engines that apply BPE merges to words and give the same subwords: fastBPE, and our own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Protocol

from ..files import read_lines
from .bpe_learning import END_OF_WORD

CONTINUES = "@@"  # ends every subword that is not the last one of its word


class Engine(Protocol):
    """Splits words into subwords with the merges of a codes file."""

    def __init__(self, codes: Path) -> None: ...

    def apply(self, words: list[str]) -> list[str]:
        """Each word as its subwords, separated by spaces."""
        ...


class PythonEngine:
    """Plain Python, for where fastBPE is not installed."""

    def __init__(self, codes: Path) -> None:
        lines = (line.decode("utf-8").split(" ") for line in read_lines(codes))
        self._ranks = {(first, second): rank for rank, (first, second, _) in enumerate(lines)}

    def apply(self, words: list[str]) -> list[str]:
        """Each word as its subwords, separated by spaces."""
        return [f"{CONTINUES} ".join(self._merge(word)).removesuffix(END_OF_WORD) for word in words]

    def _merge(self, word: str) -> list[str]:
        """The symbols of a word when no learned pair is left, the earliest learned merged first."""
        # Like fastBPE, which takes a NUL for the end of the letters and all that follows as one.
        letters, nul, rest = word.partition("\0")
        last = letters[-1:] + nul + rest
        symbols = [*letters[:-1], last + END_OF_WORD]
        ranks = self._ranks
        while len(symbols) > 1:
            pairs = zip(symbols, symbols[1:], strict=False)
            pair = min(pairs, key=lambda pair: ranks.get(pair, inf))
            if pair not in ranks:
                break
            symbols = list(merge_pair(symbols, pair))
        return symbols


def merge_pair(symbols: list[str], pair: tuple[str, str]) -> Iterator[str]:
    """The symbols with a pair of neighbours made one wherever it occurs, from left to right."""
    first, second = pair
    index, last = 0, len(symbols) - 1
    while index <= last:
        if index < last and symbols[index] == first and symbols[index + 1] == second:
            yield first + second
            index += 2
        else:
            yield symbols[index]
            index += 1


class FastBPEEngine:
    """fastBPE's C++ code: pip install 'shape-fairseq[fastbpe]'."""

    def __init__(self, codes: Path) -> None:
        import fastBPE

        with _quiet_stderr():
            self._bpe = fastBPE.fastBPE(str(codes), "")

    def apply(self, words: list[str]) -> list[str]:
        """Each word as its subwords, separated by spaces."""
        return self._bpe.apply(words)


def best_engine() -> type[Engine]:
    """fastBPE where it is installed, our own where it is not."""
    try:
        import fastBPE  # noqa: F401
    except ImportError:
        return PythonEngine
    return FastBPEEngine


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """fastBPE's C++ code reports to stderr from every process; one process is enough to hear."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
