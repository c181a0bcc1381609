"""Which maximum shift is best on validation BLEU, as in the paper's appendix B."""

from pathlib import Path

from ..command_line import Parser
from ..errors import UserError
from . import results
from .cells import by_data


def choose(scores: dict[int, float]) -> int:
    """The maximum shift with the highest score; of equal ones the smallest."""
    return min(scores, key=lambda max_shift: (-scores[max_shift], max_shift))


def main(arguments: list[str]) -> None:
    """Report validation BLEU for each maximum shift, and the best."""
    parser = Parser(
        prog="shape-fairseq max-shift",
        description=main.__doc__,
        example="results/extrapolate-shape-*.json",
    )
    parser.add_argument("results", type=Path, nargs="+", help="result files of SHAPE models")
    args = parser.parse_args(arguments)
    members = [results.read(path) for path in args.results]
    kinds = {(result.setting, result.seed, result.model) for result in members}
    if len(by_data(members)) > 1 or len(kinds) > 1:
        raise UserError("results of different data, settings, models or seeds: give one kind")
    scores = {}
    for result in members:
        score = result.macro("valid")
        if result.max_shift is None or score is None:
            raise UserError("give results of SHAPE models with scores on all of valid")
        scores[result.max_shift] = score
    for max_shift, score in sorted(scores.items()):
        print(f"max-shift {max_shift}: BLEU {score:.2f} on valid")
    print(f"best: {choose(scores)}")
