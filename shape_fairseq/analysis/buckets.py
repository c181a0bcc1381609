"""Lengths and positions in buckets, none of which holds both trained and untrained ones."""

import dataclasses
from collections import Counter
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Neighbouring ranges of whole numbers; the last one has no end."""

    ends: list[int]

    @classmethod
    def over(
        cls, numbers: Iterable[int], trained: int | None, width: int | None = None, fewest: int = 1
    ) -> "Buckets":
        """Ranges of `width`; the first and the last have at least `fewest` of the numbers."""
        counts = Counter(numbers)
        longest = max(counts)
        width = width or max(1, round((trained or longest) / 5))
        # Counted from the trained length, which so is the end of a bucket.
        first = (trained % width or width) if trained else width
        ends = list(range(first, longest, width))
        ends.append(ends[-1] + width if ends else longest)
        while len(ends) > 1 and ends[-2] != trained:
            if sum(n for number, n in counts.items() if number > ends[-2]) >= fewest:
                break
            ends.pop(-2)
        while len(ends) > 1 and ends[0] != trained:
            if sum(n for number, n in counts.items() if number <= ends[0]) >= fewest:
                break
            ends.pop(0)
        return cls(ends)

    def number(self, value: int) -> int:
        """The bucket that a value falls into."""
        return next((n for n, end in enumerate(self.ends) if value <= end), len(self.ends) - 1)

    def names(self) -> list[str]:
        starts = [1, *(end + 1 for end in self.ends[:-1])]
        return [f"{start}–{end}" for start, end in zip(starts, self.ends, strict=True)]

    def untrained(self, trained: int | None) -> list[bool]:
        """Which buckets hold lengths that no training sequence has."""
        starts = [1, *(end + 1 for end in self.ends[:-1])]
        return [trained is not None and start > trained for start in starts]
