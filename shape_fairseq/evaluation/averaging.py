"""Average the weights of a training's last checkpoints, as the paper does with ten."""

from pathlib import Path

from ..command_line import Parser, positive
from ..files import refuse_existing
from .training_folder import last_checkpoints


def main(arguments: list[str]) -> None:
    """Average the last checkpoints of a training."""
    parser = Parser(
        prog="shape-fairseq average",
        description=main.__doc__,
        example="runs/demo/checkpoints/interpolate-ape-seed1 --number 5 --output average.pt",
    )
    parser.add_argument("folder", type=Path, help="the training's --save-dir")
    parser.add_argument(
        "--number", type=positive, default=10, help="how many (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    refuse_existing(args.output)
    paths = last_checkpoints(args.folder, args.number)
    from .. import checkpoints  # after the options: --help is there at once
    from .weights import average

    checkpoints.save(average(paths), args.output)
