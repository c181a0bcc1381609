"""From a checkpoint to production: a stock fairseq checkpoint, or a CTranslate2 model."""

from importlib import import_module
from pathlib import Path

from ..command_line import Parser
from ..errors import UserError
from ..files import refuse_existing
from ..search import Search

# Imported when they are asked for: they need seconds to import torch and fairseq.
TARGETS = {"fairseq": ".fairseq_model", "ctranslate2": ".ctranslate2_model"}


def make_parser() -> Parser:
    parser = Parser(
        prog="shape-fairseq export",
        description="Export a checkpoint, averaged or not, for production.",
        example="runs/demo/checkpoints/extrapolate-shape-k30-seed1/checkpoint_last.pt \\\n"
        "    --to ctranslate2 model",
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="fairseq: a checkpoint of SHAPE, CAPE or randomized positions that any fairseq loads"
        " without --user-dir; ctranslate2: all models as a folder for shape-fairseq translate",
    )
    parser.add_argument("output", type=Path, help="OUT.pt, or the folder of the CTranslate2 model")
    group = parser.add_argument_group("for ctranslate2")
    group.add_argument("--quantization", metavar="TYPE", help="int8, float16, ... (default: none)")
    group.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="the folder that data_prep made, or a data-bin (default: that of the training)",
    )
    text = group.add_mutually_exclusive_group()
    text.add_argument(
        "--codes", type=Path, help="BPE codes (default: bpe/codes in the folder of data_prep)"
    )
    text.add_argument(
        "--tokens",
        action="store_true",
        help="the model alone, for a preprocessing of your own (SentencePiece, subword-nmt):"
        " translate then takes and gives the tokens of the dictionary, with spaces between them",
    )
    group.add_argument("--source-lang", help="default: as in the training")
    group.add_argument("--target-lang", help="default: as in the training")
    Search.add_options(
        parser.add_argument_group("how ctranslate2 translates unless told otherwise")
    )
    return parser


def main(arguments: list[str]) -> None:
    """Export a checkpoint for production."""
    args = make_parser().parse_args(arguments)
    if args.to not in TARGETS:
        raise UserError(f"unknown target '{args.to}': choose {' or '.join(TARGETS)}")
    refuse_existing(args.output)
    target = import_module(TARGETS[args.to], __package__)
    trained = import_module(".trained", __package__)
    target.export(trained.Checkpoint(args.checkpoint), args.output, args)
