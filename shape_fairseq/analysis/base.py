"""What all analyses share: their options, the signature of a result, and its files."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, ClassVar, cast

from .. import data_folder, records
from ..command_line import Parser, positive
from ..data_folder import SETTINGS
from ..errors import UserError
from ..evaluation import results
from ..files import atomic_outputs, refuse_existing, sha256
from .formats import RESULTS, Similarity

PNG_AND_SVG = ("png", "svg")


@dataclasses.dataclass(frozen=True)
class Record:
    """The JSON file of an analysis."""

    FORMAT: ClassVar[int] = 1

    analysis: str
    signature: dict[str, Any]
    result: dict[str, Any]


def labelled_path(text: str) -> tuple[str, Path]:
    """An argparse type: ape=checkpoints/average.pt."""
    label, equals, path = text.partition("=")
    if not (label and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not LABEL=CHECKPOINT, for example ape=a.pt")
    return label.lower(), Path(path)


def offset(text: str) -> int:
    """An argparse type: a number of positions; it sees models that follow --offsets, too."""
    if "=" in text:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no offset: give the models before --offsets, or another option between"
        )
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 on")
    return int(text)


def command(name: str, description: str | None, example: str) -> Parser:
    """The parser of an analysis, with the option that all have, and an example on the demo."""
    parser = Parser(
        prog=f"shape-fairseq {name}",
        description=description,
        example=example,
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help=f"gets {name}.json, .png and .svg"
    )
    return parser


def add_data(parser: Parser) -> None:
    """Add --data."""
    parser.add_argument("--data", type=Path, required=True, help="the folder that data_prep made")


def add_models(parser: Parser) -> None:
    """Options of analyses that run models."""
    add_data(parser)
    parser.add_argument(
        "models",
        type=labelled_path,
        nargs="+",
        metavar="LABEL=CHECKPOINT",
        help="for example ape=FILE shape=FILE rpe=FILE",
    )
    parser.add_argument(
        "--max-tokens", type=positive, default=4000, help="in a batch (default: %(default)s)"
    )
    parser.add_argument("--cpu", action="store_true", help="use no GPU")


def add_setting(parser: Parser, setting: str) -> None:
    """Add --setting with its default."""
    parser.add_argument("--setting", choices=SETTINGS, default=setting, help="default: %(default)s")


def add_subset(parser: Parser, setting: str) -> None:
    """Options of analyses that read one subset of a data-bin."""
    add_setting(parser, setting)
    parser.add_argument("--subset", default="valid", help="default: %(default)s")


def checkpoints(models: list[tuple[str, Path]]) -> dict[str, Path]:
    """The checkpoints by their labels, in the order of the command line."""
    paths = dict(models)
    if len(paths) < len(models):
        raise UserError("two checkpoints have the same label: give each its own")
    for path in paths.values():
        if not path.is_file():
            raise UserError(f"the checkpoint {path} is missing")
    return paths


def signature(data: Path | None, models: dict[str, Path], **settings: object) -> dict:
    """All that a result depends on."""
    return {
        "checkpoints": {
            label: {"path": str(path), "sha256": sha256(path)} for label, path in models.items()
        },
        "data": data_folder.signature(data) if data else {},
        "settings": settings,
        "versions": results.versions(),
    }


def check_new(out: Path, name: str) -> None:
    """Refuse to overwrite a result, before any work is done."""
    refuse_existing(out / f"{name}.json")


def publish(out: Path, name: str, signature: dict, result: dict, figures: dict) -> None:
    """Write the result and its figures; the JSON gets its name last, so it is never alone."""
    images = [
        (figure, ending, out / f"{figure_name}.{ending}")
        for figure_name, figure in figures.items()
        for ending in PNG_AND_SVG
    ]
    check_new(out, name)
    for _, _, path in images:
        path.unlink(missing_ok=True)  # of a run that was killed before it had its JSON
    paths = [path for _, _, path in images]
    with atomic_outputs(*paths, out / f"{name}.json") as (*image_files, json_file):
        for file, (figure, ending, _) in zip(image_files, images, strict=True):
            # Without a date the same result gives the same file.
            metadata = {"Date": None} if ending == "svg" else None
            figure.savefig(file, format=ending, metadata=metadata)
        json_file.write(records.to_json(Record(name, signature, result)))


def read(path: Path) -> Record:
    """The JSON file of an analysis, with all that claims and the report need in it."""
    record = records.read(path, Record, "a result of an analysis")
    problem = records.mismatch(record.result, RESULTS.get(record.analysis, Any))
    if not problem and not record.result.get("models", True):
        problem = "it has no models"
    if not problem and record.analysis == "similarity":
        problem = matrices_mismatch(cast(Similarity, record.result))
    if problem:
        raise UserError(
            f"{path} is not as this shape-fairseq writes it ({problem}): delete it and run"
            f" shape-fairseq {record.analysis} again"
        )
    return record


def matrices_mismatch(result: Similarity) -> str | None:
    """What is wrong with the matrices, or nothing: each has a row and a column for an offset."""
    square = [len(result["offsets"])] * len(result["offsets"])
    for label, model in result["models"].items():
        matrices = [matrix for layers in model["sequences"] for matrix in layers]
        if not matrices or not all(model["sequences"]):
            return f"models.{label}.sequences must not be empty"
        if any([len(row) for row in matrix] != square for matrix in matrices):
            return f"models.{label}.sequences must be matrices of offsets"
    return None


def trained_length(data: Path, setting: str) -> int | None:
    """The longest training sequence that EXTRAPOLATE allows; none in the other settings."""
    if setting != "extrapolate":
        return None
    limit = data_folder.read_parameters(data).get("EXTRAPOLATE_LIMIT", "")
    if not (limit.isascii() and limit.isdecimal()):
        raise UserError(f"{data}/parameters.txt has no EXTRAPOLATE_LIMIT: --trained-length N")
    return int(limit)
