"""What the paper claims, with the number it reports, and whether it holds for a folder of runs.

A claim "holds" if chance is excluded at 5 %, and "does not hold" if the opposite is as certain;
everything between is "undecided". Models that translate hardly anything are not judged by BLEU.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UserError
from ..evaluation import bootstrap, paper
from ..evaluation.bootstrap import CHANCE, BLEUSamples, Difference
from ..evaluation.cells import Cells
from ..evaluation.results import Result, label_title

HOLDS, FAILS, UNDECIDED, UNKNOWN = "holds", "does not hold", "undecided", "not measured"
INVARIANT = 0.95  # cosine from which states count as the same; the paper: "almost always 1.0"
COMPARABLE = 1.0  # BLEU within which two models count as equal
OVERHEAD = 0.05  # of the training time: "virtually no computational overhead"
LOWEST_BLEU = 5  # models below it translate too little to lose anything, or to be compared
FEWEST_TOKENS = 30
FEWEST_ITEMS = 5  # sequences or turns: resamples of fewer say nothing about chance


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was measured, in words, and what follows."""

    measured: str
    verdict: str


NOT_MEASURED = Verdict("–", UNKNOWN)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper that a measurement can contradict."""

    sentence: str
    source: str  # in the paper
    section: str  # of the report: where the figure or table is that shows it
    papers_number: str
    criterion: str
    small_run: str  # why a small run may not show it
    check: Callable[["Runs"], Verdict]


@dataclasses.dataclass(frozen=True)
class Runs:
    """The results of a folder of runs: analyses by setting and name, one for each seed, scores."""

    analyses: dict[tuple[str, str], list[dict]]  # ("interpolate", "swap"): their results
    cells: list[Cells]

    def compared(self, setting: str, name: str) -> list[dict]:
        """The models of every analysis that has both APE and SHAPE."""
        results = self.analyses.get((setting, name), [])
        return [result for result in results if {"ape", "shape"} <= set(result["models"])]

    def seeds(self, setting: str, model: str) -> list[Result]:
        """All seeds of a model that have all of test; of several SHAPEs, that with the first K."""
        for cells in self.cells:
            for variant in cells.variants(setting):
                members = cells.get(setting, variant)
                if variant[0] == model and members and has_test(members):
                    return members
        return []


def has_test(seeds: list[Result]) -> bool:
    """Whether all of test was translated in every seed."""
    return len(bleu_on_test(seeds)) == len(seeds)


def bleu_on_test(seeds: list[Result]) -> list[float]:
    """The macro average of every seed that has all of test."""
    averages = (result.macro("test") for result in seeds)
    return [average for average in averages if average is not None]


def judge(measured: str, differences: Sequence[Difference]) -> Verdict:
    """A claim that all of these are positive: holds, does not hold, or undecided with its p."""
    if all(difference.is_positive for difference in differences):
        return Verdict(measured, HOLDS)
    if any(difference.is_negative for difference in differences):
        return Verdict(measured, FAILS)
    p_value = max(difference.p_value for difference in differences if not difference.is_positive)
    return Verdict(f"{measured}; p = {p_value:.3f}", UNDECIDED)


def too_little(scores: Sequence[float]) -> bool:
    """Whether no model translates well enough to be told from another by its BLEU."""
    return max(scores) < LOWEST_BLEU


def interval(difference: Difference, digits: int = 2) -> str:
    """+1.10 (+0.31 to +1.87, paired bootstrap): the difference with its 95 % interval."""
    value, low, high = (
        f"{number:+.{digits}f}" for number in (difference.value, difference.low, difference.high)
    )
    return f"{value} ({low} to {high}, {difference.method})"


def of_items(items: list[float], limit: float) -> tuple[float, np.ndarray]:
    """The mean of sequences or turns above a limit, and resamples of it."""
    values = np.array(items) - limit
    return float(values.mean()), bootstrap.draws(len(values)) @ values / len(values)


def shift_invariance(runs: Runs) -> Verdict:
    """SHAPE's states are alike, APE's are not."""
    of_settings = (
        runs.compared(setting, name) for setting, name in runs.analyses if name == "similarity"
    )
    results = next(filter(None, of_settings), [])
    if not results:
        return NOT_MEASURED
    means, differences = {}, {}
    for model, sign in (("shape", 1), ("ape", -1)):
        # For each seed the mean cosine of every sequence in the last layer.
        seeds = [
            [between_offsets(layers[-1]) for layers in result["models"][model]["sequences"]]
            for result in results
        ]
        means[model] = statistics.fmean(result["models"][model]["mean"] for result in results)
        parts = [of_items(cosines, INVARIANT) for cosines in seeds]
        values = [sign * value for value, _ in parts]
        samples: list[np.ndarray] = [sign * sample for _, sample in parts]
        differences[model] = bootstrap.over_seeds(values, samples)
    sequences = len(results[0]["models"]["shape"]["sequences"])
    offsets = ", ".join(map(str, results[0]["offsets"]))
    measured = (
        f"cosine: SHAPE {means['shape']:.3f}, APE {means['ape']:.3f} ({sequences} sequences,"
        f" offsets {offsets})"
    )
    if sequences < FEWEST_ITEMS:
        return Verdict(f"{measured}; fewer than {FEWEST_ITEMS} sequences", UNDECIDED)
    return judge(measured, list(differences.values()))


def between_offsets(matrix: list[list[float]]) -> float:
    """The mean cosine between different offsets."""
    return statistics.fmean(
        value for row, values in enumerate(matrix) for value in values[row + 1 :]
    )


def swapping(runs: Runs) -> Verdict:
    """SHAPE loses less than APE; sequences are resampled, the same ones for all four texts."""
    results = runs.compared("interpolate", "swap")
    if not results:
        return NOT_MEASURED
    scores = {
        model: (
            statistics.fmean(result["models"][model]["bleu"]["original"] for result in results),
            statistics.fmean(result["models"][model]["drop"] for result in results),
        )
        for model in ("shape", "ape")
    }
    measured = "; ".join(
        f"{model.upper()} {original:.1f}, drop {drop:.2f}"
        for model, (original, drop) in scores.items()
    )
    if min(original for original, _ in scores.values()) < LOWEST_BLEU:
        return Verdict(f"{measured}: too little BLEU to lose", UNKNOWN)
    drops = [difference_of_drops(result) for result in results]
    values, samples = zip(*drops, strict=True)
    difference = bootstrap.over_seeds(values, samples)
    sequences = len(results[0]["references"])
    measured += f"; less by {interval(difference)}, {sequences:,} sequences"
    return judge(measured, [difference])


def difference_of_drops(result: dict) -> tuple[float, np.ndarray]:
    """By how much less BLEU SHAPE loses than APE, and resamples of that."""
    references = result["references"]
    drawn = bootstrap.draws(len(references))

    def drop(model: str) -> tuple[float, np.ndarray]:
        original, swapped = (
            BLEUSamples(result["models"][model]["sentences"][order], references, drawn)
            for order in ("original", "swapped")
        )
        return original.score - swapped.score, original.samples - swapped.samples

    (ape, ape_samples), (shape, shape_samples) = drop("ape"), drop("shape")
    return ape - shape, ape_samples - shape_samples


def extrapolation(model: str) -> Callable[[Runs], Verdict]:
    """A model is better than APE on sentences that are longer than those of the training."""

    def check(runs: Runs) -> Verdict:
        for result in runs.analyses.get(("extrapolate", "length-bleu"), []):
            models = result["models"]
            if model not in models or "ape" not in models:
                continue
            if "untrained" not in models[model]["seeds"]:
                continue
            ours, ape = (
                statistics.fmean(models[name]["seeds"]["untrained"]) for name in (model, "ape")
            )
            difference = Difference(**models[model]["differences"]["untrained"]["ape"])
            count = result["sequences"]["untrained"]
            measured = f"{label_title(model)} {ours:.2f}, APE {ape:.2f}: {interval(difference)}"
            measured += f", {count:,} sentences"
            if too_little((ours, ape)):
                return Verdict(f"{measured}: too little BLEU", UNKNOWN)
            return judge(measured, [difference])
        return NOT_MEASURED

    return check


def compare_on(setting: str, decide: Callable[[str, Difference], Verdict]) -> Callable:
    """BLEU of SHAPE minus that of APE on test, over all seeds of both, and what follows."""

    def check(runs: Runs) -> Verdict:
        shape, ape = runs.seeds(setting, "shape"), runs.seeds(setting, "ape")
        if not shape or not ape:
            return NOT_MEASURED
        means = [statistics.fmean(bleu_on_test(seeds)) for seeds in (shape, ape)]
        difference = bleu_difference(shape, ape)
        measured = f"SHAPE {means[0]:.2f}, APE {means[1]:.2f}: {interval(difference)}"
        if too_little(means):
            return Verdict(f"{measured}: too little BLEU", UNKNOWN)
        return decide(measured, difference)

    return check


def bleu_difference(shape: list[Result], ape: list[Result]) -> Difference:
    """The difference of macro-averaged BLEU on test."""
    subsets = ape[0].groups["test"]

    def texts(lines: dict[str, list[str]]) -> dict[str, list[str]]:
        return {subset: lines[subset] for subset in subsets}

    references = texts(ape[0].references)
    if any(texts(result.references) != references for result in (*shape, *ape)):
        raise UserError(f"the results of {ape[0].setting} are of different test sets")
    return bootstrap.compare_bleu(
        [texts(result.hypotheses) for result in shape],
        [texts(result.hypotheses) for result in ape],
        references,
    )


def better(measured: str, difference: Difference) -> Verdict:
    """SHAPE's BLEU is higher than APE's."""
    return judge(measured, [difference])


def comparable(measured: str, difference: Difference) -> Verdict:
    """The 95 % interval of the difference lies within one BLEU, or outside."""
    if difference.low >= -COMPARABLE and difference.high <= COMPARABLE:
        return Verdict(measured, HOLDS)
    if difference.low > COMPARABLE or difference.high < -COMPARABLE:
        return Verdict(measured, FAILS)
    return Verdict(f"{measured}; p = {difference.p_value:.3f} of no difference", UNDECIDED)


def training_speed(runs: Runs) -> Verdict:
    """SHAPE's steps take at most 5 % longer than APE's, on average over the settings."""
    speeds, parts = [], []
    fewest = FEWEST_ITEMS
    for setting, name in runs.analyses:
        for result in runs.compared(setting, "speed") if name == "speed" else []:
            ape, shape = (result["models"][model]["training"] for model in ("ape", "shape"))
            ratios = [a / s for a, s in zip(ape["turns"], shape["turns"], strict=False)]
            fewest = min(fewest, len(ratios))
            speeds.append(f"x{shape['speed']:.2f} ({setting.upper()})")
            parts.append((shape["speed"] - (1 - OVERHEAD), median_samples(ratios)))
    if not parts:
        return NOT_MEASURED
    measured = ", ".join(speeds)
    if fewest < FEWEST_ITEMS:
        return Verdict(f"{measured}; fewer than {FEWEST_ITEMS} turns", UNDECIDED)
    # The settings are different measurements, not seeds of one: their mean is what is claimed.
    value = statistics.fmean(value for value, _ in parts)
    samples = np.mean([samples for _, samples in parts], axis=0) - (1 - OVERHEAD)
    return judge(measured, [bootstrap.from_samples(value, samples, "bootstrap")])


def median_samples(items: list[float]) -> np.ndarray:
    """Medians of resamples."""
    generator = np.random.default_rng(bootstrap.SEED)
    size = (bootstrap.SAMPLES, max(len(items), 1))
    return np.median(generator.choice(items or [0.0], size=size), axis=1)


def ratio_difference(
    results: list[dict], part: str, limit: str | float
) -> tuple[Difference, float, float, int]:
    """The share of tokens that SHAPE scores higher against a limit, sequences resampled.

    The limit is a share, or the name of the part whose share it is. Also returned are the two
    shares, means over the seeds, and the number of tokens.
    """
    values, samples, shares, limits = [], [], [], []
    for result in results:
        # sequence x (tokens, scored higher)
        counts = np.array(result["by_sequence"][part], dtype=float)
        drawn = bootstrap.draws(len(counts))
        share, share_samples = share_of(counts, drawn)
        if isinstance(limit, str):
            others = np.array(result["by_sequence"][limit], dtype=float)
            compared, compared_samples = share_of(others, drawn)
        else:
            compared, compared_samples = limit, np.full(len(drawn), limit)
        values.append(share - compared)
        samples.append(share_samples - compared_samples)
        shares.append(share)
        limits.append(compared)
    tokens = sum(count for count, _ in results[0]["by_sequence"][part])
    difference = bootstrap.over_seeds(values, samples)
    return difference, statistics.fmean(shares), statistics.fmean(limits), tokens


def share_of(counts: np.ndarray, drawn: np.ndarray) -> tuple[float, np.ndarray]:
    """The share of tokens that are scored higher, and that of resampled sequences."""
    tokens, higher = counts.sum(0)
    sampled = drawn @ counts  # sample x (tokens, higher)
    return higher / tokens, sampled[:, 1] / np.maximum(sampled[:, 0], 1)


def token_results(runs: Runs, setting: str, part: str) -> list[dict]:
    """Analyses of SHAPE against APE with enough tokens of this part."""
    return [
        result
        for result in runs.analyses.get((setting, "token-scores"), [])
        if result["models"] == ["ape", "shape"]
        and sum(count for count, _ in result["by_sequence"].get(part, [])) >= FEWEST_TOKENS
    ]


def untrained_positions(runs: Runs) -> Verdict:
    """Beyond the trained positions SHAPE scores more than half of the tokens higher."""
    results = token_results(runs, "extrapolate", "untrained")
    if not results:
        return NOT_MEASURED
    difference, share, _, tokens = ratio_difference(results, "untrained", 0.5)
    low, high = 0.5 + difference.low, 0.5 + difference.high
    trained = results[0]["trained"]["ratio"]
    beside = "" if trained is None else f"; {trained:.1%} at trained positions"
    measured = f"{share:.1%} ({low:.1%} to {high:.1%}) of {tokens:,} tokens{beside}"
    return judge(measured, [difference])


def rare_tokens(runs: Runs) -> Verdict:
    """SHAPE scores more than half of all tokens higher, and even more of the rare ones."""
    results = token_results(runs, "interpolate", "rare")
    if not results:
        return NOT_MEASURED
    of_all, share_of_all, _, _ = ratio_difference(results, "all", 0.5)
    of_rare, share_of_rare, _, tokens = ratio_difference(results, "rare", "all")
    measured = f"{share_of_rare:.1%} of {tokens:,} rare tokens, {share_of_all:.1%} of all"
    return judge(measured, [of_rare, of_all])


def _gain(setting: str, model: str = "shape") -> str:
    theirs, ape = paper.TABLE_2[setting, model][1], paper.TABLE_2[setting, "ape"][1]
    return f"{model.upper()} {theirs:.2f}, APE {ape:.2f}: {theirs - ape:+.2f}"


def _drop(model: str) -> str:
    original, _, drop = paper.TABLE_1[model]
    return f"{model.upper()} {original:.1f}, drop {drop:.2f}"


CERTAIN = f"; chance excluded at {100 * CHANCE:g} %"
LEARNS_SLOWLY = (
    "SHAPE learns more slowly than APE at first, and a short training stops before it has caught up"
)

CLAIMS = (
    Claim(
        "SHAPE learns to be shift invariant, APE does not.",
        "figure 2",
        "similarity",
        "SHAPE “almost always 1.0”, APE not",
        "Mean cosine of the last encoder layer's states between different offsets: at least"
        f" {INVARIANT} for SHAPE and less for APE, sequences resampled{CERTAIN}.",
        "Invariance is learned from many random shifts: with few updates, or a K that is small"
        " against the length, states still depend on the position.",
        shift_invariance,
    ),
    Claim(
        "Moving a sentence costs SHAPE less than APE.",
        "table 1",
        "swap",
        f"{_drop('shape')}; {_drop('ape')}",
        "BLEU of Y1' lost when X1 is moved to the end is less for SHAPE, paired bootstrap over the"
        f" sequences{CERTAIN}; judged only if both have at least {LOWEST_BLEU} BLEU in the original"
        " order.",
        "A hundred sequences, where the paper has 10,000, leave a drop uncertain by several BLEU.",
        swapping,
    ),
    Claim(
        "SHAPE extrapolates better than APE.",
        "figure 3, EXTRAPOLATE",
        "length-bleu",
        f"a figure; all of test: {_gain('extrapolate')}",
        "BLEU of all sentences longer than any in training is higher for SHAPE, paired bootstrap"
        f" or spread of the seeds{CERTAIN}.",
        f"Few test sentences are that long, and {LEARNS_SLOWLY}.",
        extrapolation("shape"),
    ),
    Claim(
        "RPE extrapolates better than APE.",
        "figure 3, EXTRAPOLATE",
        "length-bleu",
        f"a figure; all of test: {_gain('extrapolate', 'rpe')}",
        "BLEU of all sentences longer than any in training is higher for RPE, paired bootstrap"
        f" or spread of the seeds{CERTAIN}.",
        "Few test sentences are that long, so that a difference of a BLEU or two may be chance.",
        extrapolation("rpe"),
    ),
    Claim(
        "SHAPE's training is as fast as APE's.",
        "tables 2 and 6",
        "speed",
        "x1.01, x0.99, x0.99",
        f"Training steps per second, measured in turns, are at most {100 * OVERHEAD:g} % fewer on"
        f" average over the settings, turns resampled{CERTAIN}.",
        "The steps of a small model take milliseconds, and the drawing of offsets is a larger part"
        " of them than of a real one; few turns on a busy machine vary by more than 5 %.",
        training_speed,
    ),
    Claim(
        "On VANILLA, SHAPE and APE are comparable.",
        "table 2",
        "tables",
        _gain("vanilla"),
        f"The 95 % interval of the difference in BLEU on test lies within {COMPARABLE:g} BLEU.",
        f"A few hundred test sentences give intervals wider than that, and {LEARNS_SLOWLY}.",
        compare_on("vanilla", comparable),
    ),
    Claim(
        "On INTERPOLATE, SHAPE outperforms APE.",
        "table 2",
        "tables",
        _gain("interpolate"),
        "BLEU on test, joined with <sep> as in the paper, is higher for SHAPE, paired bootstrap or"
        f" spread of the seeds{CERTAIN}.",
        f"Joined sentences are where the difference is largest: {LEARNS_SLOWLY}.",
        compare_on("interpolate", better),
    ),
    Claim(
        "Better extrapolation means better token precision.",
        "figure 4a",
        "token-scores",
        "a figure",
        "Beyond the trained positions SHAPE scores more than half of the gold tokens higher,"
        f" sequences resampled{CERTAIN}.",
        "Few sentences reach that far, and all their tokens share one model's luck.",
        untrained_positions,
    ),
    Claim(
        "Interpolation is particularly effective for rare tokens.",
        "figure 4b",
        "token-scores",
        "a figure",
        "On INTERPOLATE SHAPE scores more than half of all gold tokens higher, and a larger share"
        f" of those seen fewer than 100 times in training, sequences resampled{CERTAIN}.",
        f"A small vocabulary has few rare tokens, and {LEARNS_SLOWLY}.",
        rare_tokens,
    ),
)
