"""The result of evaluating one model: what it is, what it scored, and how that came about."""

import dataclasses
import json
import platform
import statistics
from importlib import metadata
from pathlib import Path

from ..errors import UserError
from ..files import atomic_outputs

AS_IN_PAPER = "as_in_paper"  # INTERPOLATE: joined sentences, their <sep> is scored
SPLIT = "split"  # INTERPOLATE: sentence by sentence
ALL = "average"  # the macro average of all newstests
PAPERS_MAX_SHIFT = 500
PACKAGES = ("fairseq", "fairseq-fixed", "torch", "sacrebleu", "sacremoses", "shape-fairseq")


@dataclasses.dataclass(frozen=True)
class Result:
    """One model with one seed on one dataset setting."""

    setting: str
    model: str
    size: str
    seed: int
    max_shift: int | None
    groups: dict[str, list[str]]  # "valid": ["newstest2010", ...]
    bleu: dict[str, dict[str, float]]  # "as_in_paper": {"newstest2010": 24.22, ...}
    separators: dict[str, dict[str, int]]
    training: dict
    signature: dict
    hypotheses: dict[str, list[str]]
    references: dict[str, list[str]]

    @property
    def variant(self) -> tuple[str, int | None]:
        """The model, with SHAPE's maximum shift where it is not the paper's usual one."""
        usual = self.max_shift in (None, PAPERS_MAX_SHIFT)
        return self.model, None if usual else self.max_shift

    def macro(self, group: str, kind: str = AS_IN_PAPER) -> float | None:
        """The mean BLEU of the newstests of a group; none if one of them was not scored."""
        scores = self.bleu.get(kind, {})
        names = sum(self.groups.values(), []) if group == ALL else self.groups.get(group, [])
        if not names or not all(name in scores for name in names):
            return None
        return statistics.fmean(scores[name] for name in names)


def write(result: Result, path: Path) -> None:
    """Write a result file; it appears only when it is complete and replaces nothing."""
    with atomic_outputs(path) as (file,):
        text = json.dumps(dataclasses.asdict(result), indent=1, ensure_ascii=False)
        file.write(f"{text}\n".encode())


def read(path: Path) -> Result:
    """Read a result file."""
    try:
        return Result(**json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is no result of recipes/evaluate.sh") from error


def read_parameters(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines, as data_prep and the recipes leave them."""
    if not path.exists():
        raise UserError(f"{path} is missing: is {path.parent} the right folder?")
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def versions() -> dict[str, str]:
    """The versions of all that moves a score."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
