"""The result of evaluating one model: what it is, what it scored, and how that came about."""

import dataclasses
import platform
import statistics
from importlib import metadata
from pathlib import Path
from typing import ClassVar, TypedDict

from .. import records
from ..errors import UserError
from ..files import atomic_outputs
from ..model_names import MODELS

AS_IN_PAPER = "as_in_paper"  # INTERPOLATE: joined sentences, their <sep> is scored
SPLIT = "split"  # INTERPOLATE: sentence by sentence
ALL = "average"  # the macro average of all newstests
BLEU, CHRF, TER = "BLEU", "chrF2", "TER"
LOWERCASED_TOKENIZED = "lowercased tokenized BLEU"
PAPERS_MAX_SHIFT = 500
WHAT = "a result of recipes/evaluate.sh"
PACKAGES = ("fairseq", "fairseq-fixed", "torch", "sacrebleu", "sacremoses", "shape-fairseq")

Variant = tuple[str, int | None]  # a model, and SHAPE's K where it is not the paper's
Scores = dict[str, float]  # "newstest2010": 24.22


class Training(TypedDict):
    """What the training took."""

    updates: int
    seconds: float
    parameters: int
    hardware: str


class Separators(TypedDict):
    """How many <sep> are missing or too many, and in how many sequences."""

    sequences: int
    expected: int
    missing: int
    extra: int
    sequences_with_missing: int
    sequences_with_extra: int


class Signature(TypedDict):
    """All that moves a score, as far as it is read again."""

    data: dict[str, str]
    generation: dict[str, str]
    sacrebleu: str
    training: dict[str, str]


class WrittenSignature(Signature):
    """All that moves a score, as it is written today; older files have less."""

    checkpoint: str  # its checksum
    averaged_updates: list[int]
    versions: dict[str, str]
    other_metrics: dict[str, str]
    sacrebleu_test_sets: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Result:
    """One model with one seed on one dataset setting."""

    FORMAT: ClassVar[int] = 1

    setting: str
    model: str
    size: str
    seed: int
    max_shift: int | None
    groups: dict[str, list[str]]  # "valid": ["newstest2010", ...]
    bleu: dict[str, Scores]  # "as_in_paper": {"newstest2010": 24.22, ...}
    separators: dict[str, Separators]
    training: Training
    signature: Signature
    hypotheses: dict[str, list[str]]
    references: dict[str, list[str]]
    other_metrics: dict[str, dict[str, Scores]] = dataclasses.field(default_factory=dict)

    @property
    def variant(self) -> Variant:
        """The model, with SHAPE's maximum shift where it is not the paper's usual one."""
        usual = self.max_shift in (None, PAPERS_MAX_SHIFT)
        return self.model, None if usual else self.max_shift

    def scores(self, metric: str = BLEU, kind: str = AS_IN_PAPER) -> Scores:
        """The scores of all test sets in one metric; none if it was not computed."""
        return (self.bleu if metric == BLEU else self.other_metrics.get(metric, {})).get(kind, {})

    def macro(self, group: str, kind: str = AS_IN_PAPER, metric: str = BLEU) -> float | None:
        """The mean score of the newstests of a group; none if one of them was not scored."""
        scores = self.scores(metric, kind)
        names = sum(self.groups.values(), []) if group == ALL else self.groups.get(group, [])
        if not names or not all(name in scores for name in names):
            return None
        return statistics.fmean(scores[name] for name in names)


def title_of(result: Result) -> str:
    """The model of a result as tables show it."""
    return variant_title(result.variant)


def variant_title(variant: Variant) -> str:
    """APE, RPE, SHAPE, or SHAPE (K=40)."""
    model, max_shift = variant
    return model_title(model) + ("" if max_shift is None else f" (K={max_shift})")


def label_of(result: Result) -> str:
    """ape, rpe, shape, or shape-k40: the model of a result as options and figures name it."""
    model, max_shift = result.variant
    return model if max_shift is None else f"{model}-k{max_shift}"


def label_title(label: str) -> str:
    """APE for ape, SHAPE (K=40) for shape-k40, SHAPE (K=40, growing) for shape-k40-growing."""
    model, _, shift = label.partition("-k")
    return model_title(model) + (f" (K={shift.replace('-', ', ')})" if shift else "")


def model_title(model: str) -> str:
    """The usual spelling of a model's name."""
    return MODELS[model].title if model in MODELS else model.upper()


def write(result: Result, path: Path) -> None:
    """Write a result file; it appears only when it is complete and replaces nothing."""
    with atomic_outputs(path) as (file,):
        file.write(records.to_json(result))


def read(path: Path) -> Result:
    """Read a result file."""
    result = records.read(path, Result, WHAT)
    for name in ("updates", "seconds"):
        if not result.training[name] > 0:
            raise UserError(f"{path} is not {WHAT}: training.{name} must be more than 0")
    for subset in result.hypotheses.keys() | result.references.keys():
        numbers = {len(part.get(subset, [])) for part in (result.hypotheses, result.references)}
        if len(numbers) > 1 or 0 in numbers:
            raise UserError(f"{path} is not {WHAT}: {subset} must have a reference for each line")
    return result


def versions() -> dict[str, str]:
    """The versions of all that moves a score."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed
