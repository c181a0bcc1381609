"""Could a difference be chance? Paired bootstrap resampling, and the spread of seeds."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import BLEU

SAMPLES = 1000
SEED = 12345  # sacreBLEU's own
CHANCE = 0.05
FEWEST_SEEDS = 3  # from which their spread says something

Texts = dict[str, list[str]]  # lines by test set
Scored = tuple[float, np.ndarray]  # a score and resamples of it


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference with its 95 % interval and how likely chance alone makes one as large."""

    value: float
    low: float
    high: float
    p_value: float  # two-sided
    method: str

    @property
    def is_positive(self) -> bool:
        """Positive, and chance is excluded at 5 %."""
        return self.value > 0 and self.p_value < CHANCE

    @property
    def is_negative(self) -> bool:
        """Negative, and chance is excluded at 5 %."""
        return self.value < 0 and self.p_value < CHANCE


def draws(items: int, samples: int = SAMPLES) -> np.ndarray:
    """Resamples with replacement: how often each item is drawn, samples x items."""
    return np.random.default_rng(SEED).multinomial(items, np.full(items, 1 / items), size=samples)


def from_samples(value: float, samples: np.ndarray, method: str) -> Difference:
    """A difference whose chance is judged by resamples of it.

    The p-value is the share of resamples that lie as far from their mean as the value from zero,
    on either side. sacreBLEU's paired bootstrap counts one side, so its p is about half as large.
    """
    low, high = np.quantile(samples, (CHANCE / 2, 1 - CHANCE / 2))
    farther = np.abs(samples - samples.mean()) >= abs(value)
    p_value = (np.count_nonzero(farther) + 1) / (len(samples) + 1)
    return Difference(value, float(low), float(high), min(float(p_value), 1.0), method)


def from_seeds(values: Sequence[float]) -> Difference:
    """The mean of one difference for each seed, judged by their spread: Student's t-test."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return _student(statistics.fmean(values), error, len(values) - 1, f"{len(values)} seeds")


def between_seeds(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """The difference of two models' means over their seeds: Student's two-sample t-test."""
    freedom = len(ours) + len(theirs) - 2
    squares = sum(statistics.variance(scores) * (len(scores) - 1) for scores in (ours, theirs))
    error = math.sqrt(squares / freedom * (1 / len(ours) + 1 / len(theirs)))
    value = statistics.fmean(ours) - statistics.fmean(theirs)
    return _student(value, error, freedom, f"{len(ours)} and {len(theirs)} seeds")


def _student(value: float, error: float, freedom: int, method: str) -> Difference:
    if error == 0:
        return Difference(value, value, value, float(value == 0), method)
    width = _t_quantile(freedom) * error
    p_value = 1 - _within(abs(value) / error, freedom)
    return Difference(value, value - width, value + width, p_value, method)


def _within(t: float, freedom: int) -> float:
    """The probability that Student's t lies between -t and t (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2 == 0:
        term = total = 1.0
        for k in range(2, freedom, 2):
            term *= (k - 1) / k * cosine**2
            total += term
        return math.sin(angle) * total
    term, total = cosine, (cosine if freedom > 1 else 0.0)
    for k in range(3, freedom, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total)


def _t_quantile(freedom: int) -> float:
    """The t beyond which, on both sides, lie 5 %."""
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 1 - CHANCE else (low, middle)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of many questions at once: raised so far that one false alarm among all of
    them is as unlikely as it was for each alone (Holm, 1979).
    """
    raised, highest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        raised[place] = highest
    return raised


class BLEUSamples:
    """BLEU of one text, and of the resamples of its sentences."""

    def __init__(self, hypotheses: Sequence[str], references: Sequence[str], drawn: np.ndarray):
        metric = BLEU()
        # What sacreBLEU's own bootstrap does, with all resamples at once.
        counts = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
        self.score: float = metric._compute_score_from_stats(counts.sum(0).tolist()).score
        self.samples = np.array(
            [metric._compute_score_from_stats(row).score for row in (drawn @ counts).tolist()]
        )


def compare_bleu(
    ours: Sequence[Texts], theirs: Sequence[Texts], references: Texts, samples: int = SAMPLES
) -> Difference:
    """Macro-averaged BLEU of one model's seeds minus that of another's."""
    drawn = {subset: draws(len(lines), samples) for subset, lines in references.items()}

    def macro(texts: Texts) -> Scored:
        sets = [BLEUSamples(texts[name], references[name], drawn[name]) for name in references]
        return (
            statistics.fmean(test_set.score for test_set in sets),
            np.mean([test_set.samples for test_set in sets], axis=0),
        )

    return between_models([*map(macro, ours)], [*map(macro, theirs)])


def between_models(ours: Sequence[Scored], theirs: Sequence[Scored]) -> Difference:
    """The mean of one model's seeds minus that of another's: the spread of three, or bootstrap."""
    our_scores, our_samples = zip(*ours, strict=True)
    their_scores, their_samples = zip(*theirs, strict=True)
    if min(len(ours), len(theirs)) >= FEWEST_SEEDS:
        return between_seeds(our_scores, their_scores)
    return from_samples(
        statistics.fmean(our_scores) - statistics.fmean(their_scores),
        np.mean(our_samples, axis=0) - np.mean(their_samples, axis=0),
        "paired bootstrap",
    )


def over_seeds(values: Sequence[float], samples: Sequence[np.ndarray]) -> Difference:
    """One difference for each seed with its resamples: the spread of three, or the bootstrap."""
    if len(values) >= FEWEST_SEEDS:
        return from_seeds(values)
    return from_samples(statistics.fmean(values), np.mean(samples, axis=0), "bootstrap")
