"""Results gathered into the cells of a table: by setting and model, over all seeds."""

import statistics
from collections.abc import Iterable
from typing import Literal

from ..errors import UserError
from .results import ALL, AS_IN_PAPER, Result, Variant, title_of
from .table import MISSING, NOT_REPORTED

Number = Literal["seconds", "updates", "parameters"]
PAPERS_MODELS = ("ape", "rpe", "shape")


class Cells:
    """The results of one data set and one model size, by setting and model."""

    def __init__(self, results: list[Result]):
        self.results = results
        self.cells: dict[tuple[str, Variant], list[Result]] = {}
        for result in results:
            members = self.cells.setdefault((result.setting, result.variant), [])
            check_same_kind(members, result)
            members.append(result)
        data, size = results[0].signature["data"], results[0].size
        self.is_papers = data.get("DATA") == "wmt16" and size == "base"
        self.groups = results[0].groups
        self.name = f"{data.get('DATA')}, {size}"
        self.subsets = sum(self.groups.values(), [])

    def variants(self, setting: str) -> list[Variant]:
        """The paper's three models, and any other model or maximum shift that we have."""
        papers = [(model, None) for model in PAPERS_MODELS]
        present = {variant for name, variant in self.cells if name == setting}
        others = present.difference(papers)
        return [*papers, *sorted(others, key=lambda variant: (variant[0], variant[1] or 0))]

    def get(self, setting: str, variant: Variant) -> list[Result]:
        """The seeds of a model on a setting."""
        return self.cells.get((setting, variant), [])

    def seeds(self, setting: str, variant: Variant) -> str:
        """How many seeds there are."""
        return str(len(self.get(setting, variant)) or MISSING)

    def score(
        self, setting: str, variant: Variant, subset: str, kind: str = AS_IN_PAPER, metric="BLEU"
    ) -> str:
        """The score on a test set or the macro average of a group, over all seeds."""
        averages = (*self.groups, ALL)
        return mean_cell(
            # "valid" is a group, and in small data also the one test set of that group.
            result.macro(subset, kind, metric)
            if subset in averages
            else result.scores(metric, kind).get(subset)
            for result in self.get(setting, variant)
        )

    def seconds_per_update(self, setting: str, variant: Variant) -> float | None:
        """How long an update took, the mean of the seeds."""
        members = self.get(setting, variant)
        if not members:
            return None
        return statistics.fmean(
            result.training["seconds"] / result.training["updates"] for result in members
        )

    def hardware(self, setting: str, variant: Variant) -> str:
        """What the seeds were trained on."""
        names = {result.training["hardware"] for result in self.get(setting, variant)}
        return " and ".join(sorted(names)) or MISSING

    def speed(self, setting: str, variant: Variant) -> str:
        """How many updates this model makes while APE makes one, on the same hardware."""
        baseline = self.seconds_per_update(setting, ("ape", None))
        ours = self.seconds_per_update(setting, variant)
        if baseline is None or ours is None:
            return MISSING
        if self.hardware(setting, variant) != self.hardware(setting, ("ape", None)):
            return "other hardware"
        return speed_cell(baseline / ours)

    def training(self, setting: str, variant: Variant, name: Number) -> str:
        """A whole number of the training, the mean of the seeds."""
        values = [result.training[name] for result in self.get(setting, variant)]
        return f"{statistics.fmean(values):,.0f}" if values else MISSING


def by_data(results: list[Result]) -> list[Cells]:
    """Results of different data or model sizes never share a table."""
    parts: dict[tuple, list[Result]] = {}
    for result in results:
        key = (tuple(sorted(result.signature["data"].items())), result.size)
        parts.setdefault(key, []).append(result)
    return [Cells(part) for part in parts.values()]


def check_same_kind(members: list[Result], result: Result) -> None:
    """Refuse to average seeds that differ in more than the seed."""
    for other in members:
        if other.seed == result.seed:
            raise UserError(
                f"two results of {title_of(result)} on {result.setting} with seed {result.seed}:"
                " give one of them"
            )
        ours, theirs = _all_but_seed(result), _all_but_seed(other)
        different = [name for name, value in ours.items() if theirs[name] != value]
        if different:
            raise UserError(
                f"{title_of(result)} on {result.setting}: seeds {other.seed} and {result.seed}"
                f" differ in {', '.join(different)}, so their mean would say nothing"
            )


def _all_but_seed(result: Result) -> dict:
    same = {name: result.signature[name] for name in ("data", "generation", "sacrebleu")}
    recipe = {name: value for name, value in result.signature["training"].items() if name != "SEED"}
    return same | {"training": recipe, "updates": result.training["updates"]}


def mean_cell(values: Iterable[float | None]) -> str:
    """One score, or the mean of several with their standard deviation."""
    scores = []
    for value in values:
        if value is None:
            return MISSING
        scores.append(value)
    if not scores:
        return MISSING
    spread = f" ±{statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.2f}{spread}"


def speed_cell(speed: float | None) -> str:
    """A speed relative to APE's."""
    return NOT_REPORTED if speed is None else f"x{speed:.2f}"
