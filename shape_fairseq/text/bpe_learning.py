"""The merges of byte-pair encoding: always the most frequent pair, found without counting again.

They are the merges that subword-nmt learns: of equally frequent pairs the alphabetically last one
goes first, and no pair that occurs only once is merged.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import add

END_OF_WORD = "</w>"
LAST_CHARACTER = 0x10FFFF


class Symbols:
    """Gives each symbol one character of its own, so that words of symbols are plain strings."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._ranks: list[str] = []
        self._codes: dict[str, str] = {}

    def code(self, name: str) -> str:
        """The character that stands for a symbol."""
        if name not in self._codes:
            self._codes[name] = chr(len(self._names))
            self._names.append(name)
            # A heap gives the smallest first, so the last of the alphabet must be the smallest.
            mirrored = [chr(LAST_CHARACTER - ord(character)) for character in name]
            self._ranks.append("".join(mirrored) + chr(LAST_CHARACTER))
        return self._codes[name]

    def encode(self, word: str) -> str:
        """A word as a string of the codes of its letters, of which the last one ends the word."""
        return "".join(map(self.code, [*word[:-1], word[-1] + END_OF_WORD]))

    def spell(self, pair: str) -> tuple[str, str]:
        """The two symbols of a pair of codes."""
        return self._names[ord(pair[0])], self._names[ord(pair[1])]

    def entry(self, pair: str, count: int) -> tuple[int, str, str, str]:
        """How a pair lies in a heap: frequent ones first, then the last ones of the alphabet."""
        return -count, self._ranks[ord(pair[0])], self._ranks[ord(pair[1])], pair


class Vocabulary:
    """Words of symbols, with the number and the places of every pair of neighbours."""

    def __init__(self, words: list[str], weights: list[int]) -> None:
        self._words = words
        self._weights = weights
        self._places: dict[str, array] = defaultdict(lambda: array("I"))
        self.counts: dict[str, int] = defaultdict(int)
        for number, (word, weight) in enumerate(zip(words, weights, strict=True)):
            for pair in map(add, word, word[1:]):
                self.counts[pair] += weight
                self._places[pair].append(number)

    def merge(self, pair: str, merged: str) -> set[str]:
        """Replace a pair by one symbol everywhere; return the pairs that became more frequent."""
        words, places, counts = self._words, self._places, self.counts
        first, second = pair[0], pair[1]
        new = set()
        # Some words stand there many times: a long one would be searched again for each.
        for number in dict.fromkeys(places.pop(pair)):
            pieces = words[number].split(pair)
            # The places include words that lost the pair to another merge.
            if len(pieces) == 1:
                continue
            words[number] = merged.join(pieces)
            weight = self._weights[number]
            for lost, gained in neighbours(pieces, first, second, merged):
                counts[lost] -= weight
                counts[gained] += weight
                places[gained].append(number)
                new.add(gained)
        del counts[pair]
        return new


def neighbours(
    pieces: list[str], first: str, second: str, merged: str
) -> Iterator[tuple[str, str]]:
    """The pairs around a merged pair, before and after; `pieces` is the rest of the word."""
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        if piece:
            if index:
                yield second + piece[0], merged + piece[0]
            if index < last:
                yield piece[-1] + first, piece[-1] + merged
        elif 0 < index < last:
            yield second + first, merged + merged


def learn_merges(frequencies: Mapping[str, int], min_count: int = 2) -> Iterator[tuple[str, str]]:
    """The pairs of symbols to merge, in order, until none occurs `min_count` times."""
    symbols = Symbols()
    vocabulary = Vocabulary(list(map(symbols.encode, frequencies)), list(frequencies.values()))
    counts = vocabulary.counts
    heap = [symbols.entry(pair, count) for pair, count in counts.items() if count >= min_count]
    heapify(heap)
    while heap:
        noted, _, _, pair = heappop(heap)
        count = counts.get(pair, 0)
        if count == -noted:
            first, second = symbols.spell(pair)
            yield first, second
            for gained in vocabulary.merge(pair, symbols.code(first + second)):
                if counts[gained] >= min_count:
                    heappush(heap, symbols.entry(gained, counts[gained]))
        # An entry stays in the heap when its pair becomes rarer: it is put right when it comes up.
        elif min_count <= count < -noted:
            heappush(heap, symbols.entry(pair, count))
