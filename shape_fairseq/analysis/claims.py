"""What the paper claims, with the number it reports, and whether it holds for a folder of runs."""

import dataclasses
from collections.abc import Callable

from ..evaluation import paper
from ..evaluation.tables import Cells
from . import swap

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not measured"
INVARIANT = 0.95  # cosine from which states count as the same; the paper: "almost always 1.0"
COMPARABLE = 0.5  # BLEU within which two models count as equal
OVERHEAD = 0.05  # of the training time: "virtually no computational overhead"
LOWEST_BLEU = 5  # a model below it translates too little to lose anything
RARE = 3  # rows of figure 4: unseen, 1-9 and 10-99 times in the training data
FEWEST_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was measured, in words, and what follows."""

    measured: str
    verdict: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper that a measurement can contradict."""

    sentence: str
    where: str
    papers_number: str
    criterion: str
    check: Callable[["Runs"], Verdict]


@dataclasses.dataclass(frozen=True)
class Runs:
    """The results of a folder of runs: analyses by setting and name, and scores."""

    analyses: dict[tuple[str, str], dict]  # ("interpolate", "swap"): its result
    cells: list[Cells]

    def models(self, setting: str, name: str) -> dict:
        """The models of an analysis by label; SHAPE without its K where there is only one."""
        return self.analyses.get((setting, name), {}).get("models", {})

    def bleu(self, setting: str, model: str, group: str = "test") -> float | None:
        """Mean BLEU of a model's seeds on a group; of several SHAPEs, that with the first K."""
        for cells in self.cells:
            for variant in cells.variants(setting):
                found = [one.macro(group) for one in cells.get(setting, variant)]
                if variant[0] == model and found and None not in found:
                    return sum(found) / len(found)
        return None


NOT_MEASURED = Verdict("–", UNKNOWN)


def verdict(measured: str, holds: bool) -> Verdict:
    return Verdict(measured, HOLDS if holds else FAILS)


def shift_invariance(runs: Runs) -> Verdict:
    for (_, name), result in runs.analyses.items():
        models = result["models"] if name == "similarity" else {}
        if {"ape", "shape"} <= models.keys():
            ape, shape = models["ape"]["mean"], models["shape"]["mean"]
            offsets = ", ".join(map(str, result["offsets"]))
            return verdict(
                f"SHAPE {shape:.3f}, APE {ape:.3f} (offsets {offsets})",
                shape >= INVARIANT > ape,
            )
    return NOT_MEASURED


def swapping(runs: Runs) -> Verdict:
    models = runs.models("interpolate", "swap")
    if not {"ape", "shape"} <= models.keys():
        return NOT_MEASURED
    ape, shape = models["ape"], models["shape"]
    measured = (
        f"SHAPE {shape['bleu']['original']:.1f}, drop {shape['drop']:.2f};"
        f" APE {ape['bleu']['original']:.1f}, drop {ape['drop']:.2f}"
    )
    if min(model["bleu"]["original"] for model in (ape, shape)) < LOWEST_BLEU:
        return Verdict(f"{measured}: too little BLEU to lose", UNKNOWN)
    return verdict(measured, shape["drop"] < ape["drop"])


def extrapolation(model: str) -> Callable[[Runs], Verdict]:
    def check(runs: Runs) -> Verdict:
        models = runs.models("extrapolate", "length-bleu")
        ours, ape = (models.get(name, {}).get("untrained") for name in (model, "ape"))
        if ours is None or ape is None:
            return NOT_MEASURED
        count = runs.analyses["extrapolate", "length-bleu"]["sequences"]["untrained"]
        chance = f"{count:,} sentences, p = {models[model]['untrained_p_value']:.3f}"
        return verdict(
            f"{model.upper()} {ours:.2f}, APE {ape:.2f}: {ours - ape:+.2f} ({chance})", ours > ape
        )

    return check


def better_on(setting: str) -> Callable[[Runs], Verdict]:
    def check(runs: Runs) -> Verdict:
        shape, ape = runs.bleu(setting, "shape"), runs.bleu(setting, "ape")
        if shape is None or ape is None:
            return NOT_MEASURED
        measured = f"SHAPE {shape:.2f}, APE {ape:.2f}: {shape - ape:+.2f}"
        if setting == "vanilla":
            return verdict(measured, abs(shape - ape) <= COMPARABLE)
        return verdict(measured, shape > ape)

    return check


def training_speed(runs: Runs) -> Verdict:
    speeds = {
        setting: result["models"]["shape"]["training"]["speed"]
        for (setting, name), result in runs.analyses.items()
        if name == "speed" and "shape" in result["models"]
    }
    if not speeds:
        return NOT_MEASURED
    measured = ", ".join(f"x{speed:.2f} ({setting.upper()})" for setting, speed in speeds.items())
    return verdict(measured, sum(speeds.values()) / len(speeds) >= 1 - OVERHEAD)


def untrained_positions(runs: Runs) -> Verdict:
    result = runs.analyses.get(("extrapolate", "token-scores"))
    if not result or result["untrained"]["tokens"] < FEWEST_TOKENS:
        return NOT_MEASURED
    found, trained = result["untrained"], result["trained"]
    beyond = f"{found['ratio']:.1%} of {found['tokens']:,} tokens"
    return verdict(f"{beyond}; {trained['ratio']:.1%} at trained positions", found["ratio"] > 0.5)


def rare_tokens(runs: Runs) -> Verdict:
    result = runs.analyses.get(("interpolate", "token-scores"))
    if not result:
        return NOT_MEASURED
    rows = [row for row in result["by_frequency"][:RARE] if row["tokens"]]
    tokens = sum(row["tokens"] for row in rows)
    if tokens < FEWEST_TOKENS:
        return NOT_MEASURED
    rare = sum(row["ratio"] * row["tokens"] for row in rows) / tokens
    everywhere = result["all"]["ratio"]
    return verdict(
        f"{rare:.1%} of {tokens:,} rare tokens, {everywhere:.1%} of all",
        rare > everywhere > 0.5,
    )


def _gain(setting: str, model: str = "shape") -> str:
    theirs, ape = paper.TABLE_2[setting, model][1], paper.TABLE_2[setting, "ape"][1]
    return f"{model.upper()} {theirs:.2f}, APE {ape:.2f}: {theirs - ape:+.2f}"


CLAIMS = (
    Claim(
        "SHAPE learns to be shift invariant, APE does not.",
        "figure 2",
        "SHAPE “almost always 1.0”, APE not",
        "Mean cosine of the last encoder layer's states between different offsets: at least"
        f" {INVARIANT} for SHAPE and less for APE.",
        shift_invariance,
    ),
    Claim(
        "Moving a sentence costs SHAPE less than APE.",
        "table 1",
        "SHAPE {:.1f}, drop {:.2f}; APE {:.1f}, drop {:.2f}".format(
            *swap.PAPER["shape"][::2], *swap.PAPER["ape"][::2]
        ),
        "BLEU of Y1' lost when X1 is moved to the end is less for SHAPE; judged only if both"
        f" have at least {LOWEST_BLEU} BLEU in the original order.",
        swapping,
    ),
    Claim(
        "SHAPE extrapolates better than APE.",
        "figure 3, EXTRAPOLATE",
        f"a figure; all of test: {_gain('extrapolate')}",
        "BLEU of all sentences longer than any in training is higher for SHAPE (p: paired"
        " bootstrap).",
        extrapolation("shape"),
    ),
    Claim(
        "RPE extrapolates better than APE.",
        "figure 3, EXTRAPOLATE",
        f"a figure; all of test: {_gain('extrapolate', 'rpe')}",
        "BLEU of all sentences longer than any in training is higher for RPE (p: paired"
        " bootstrap).",
        extrapolation("rpe"),
    ),
    Claim(
        "SHAPE's training is as fast as APE's.",
        "tables 2 and 6",
        "x1.01, x0.99, x0.99",
        f"Training steps per second, measured in turns, are at most {OVERHEAD:.0%} fewer on"
        " average over the settings.",
        training_speed,
    ),
    Claim(
        "On VANILLA, SHAPE and APE are comparable.",
        "table 2",
        _gain("vanilla"),
        f"BLEU on test differs by at most {COMPARABLE}.",
        better_on("vanilla"),
    ),
    Claim(
        "On INTERPOLATE, SHAPE outperforms APE.",
        "table 2",
        _gain("interpolate"),
        "BLEU on test, joined with <sep> as in the paper, is higher for SHAPE.",
        better_on("interpolate"),
    ),
    Claim(
        "Better extrapolation means better token precision.",
        "figure 4a",
        "a figure",
        "Beyond the trained positions SHAPE scores more than half of the gold tokens higher.",
        untrained_positions,
    ),
    Claim(
        "Interpolation is particularly effective for rare tokens.",
        "figure 4b",
        "a figure",
        "On INTERPOLATE SHAPE scores more than half of all gold tokens higher, and a larger share"
        " of those seen fewer than 100 times in training.",
        rare_tokens,
    ),
)
