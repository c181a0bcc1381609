"""Which maximum shift is best on validation BLEU, as in the paper's appendix B."""

import argparse
from pathlib import Path

from ..errors import UserError
from . import results
from .tables import by_data


def choose(scores: dict[int, float]) -> int:
    """The maximum shift with the highest score; of equal ones the smallest."""
    return min(scores, key=lambda max_shift: (-scores[max_shift], max_shift))


def main(arguments: list[str]) -> None:
    """Report validation BLEU for each maximum shift, and the best."""
    parser = argparse.ArgumentParser(prog="shape-fairseq max-shift", description=main.__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="result files of SHAPE models")
    args = parser.parse_args(arguments)
    found = [results.read(path) for path in args.results]
    if len(by_data(found)) > 1 or len({(one.setting, one.seed, one.model) for one in found}) > 1:
        raise UserError("results of different data, settings, models or seeds: give one kind")
    scores = {one.max_shift: one.macro("valid") for one in found}
    if None in scores or None in scores.values():
        raise UserError("give results of SHAPE models with scores on all of valid")
    for max_shift, score in sorted(scores.items()):
        print(f"max-shift {max_shift}: BLEU {score:.2f} on valid")
    print(f"best: {choose(scores)}")
