"""What all analyses share: their options, the signature of a result, and its files."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from ..command_line import positive
from ..data_folder import SETTINGS
from ..errors import UserError
from ..evaluation import results
from ..files import atomic_outputs, refuse_existing, sha256

PNG_AND_SVG = ("png", "svg")


def labelled_path(text: str) -> tuple[str, Path]:
    """An argparse type: ape=checkpoints/average.pt."""
    label, equals, path = text.partition("=")
    if not (label and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not LABEL=CHECKPOINT, for example ape=a.pt")
    return label.lower(), Path(path)


def command(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of an analysis, with the option that all have."""
    parser = argparse.ArgumentParser(prog=f"shape-fairseq {name}", description=description)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help=f"gets {name}.json, .png and .svg"
    )
    return parser


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="the folder that data_prep made")


def add_models(parser: argparse.ArgumentParser) -> None:
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


def add_setting(parser: argparse.ArgumentParser, setting: str) -> None:
    parser.add_argument("--setting", choices=SETTINGS, default=setting, help="default: %(default)s")


def add_subset(parser: argparse.ArgumentParser, setting: str) -> None:
    """Options of analyses that read one subset of a data-bin."""
    add_setting(parser, setting)
    parser.add_argument("--subset", default="valid", help="default: %(default)s")


def checkpoints(models: list[tuple[str, Path]]) -> dict[str, Path]:
    """The checkpoints by their labels, in the order of the command line."""
    found = dict(models)
    if len(found) < len(models):
        raise UserError("two checkpoints have the same label: give each its own")
    for path in found.values():
        if not path.is_file():
            raise UserError(f"the checkpoint {path} is missing")
    return found


def parameters(data: Path) -> dict[str, str]:
    """What a data folder was made with, and which dictionary it has."""
    found = results.read_parameters(data / "parameters.txt")
    return {**found, "dictionary": sha256(data / "dict.txt")}


def signature(data: Path | None, models: dict[str, Path], **settings: object) -> dict:
    """All that a result depends on."""
    return {
        "checkpoints": {
            label: {"path": str(path), "sha256": sha256(path)} for label, path in models.items()
        },
        "data": parameters(data) if data else {},
        "settings": settings,
        "versions": results.versions(),
    }


def outputs(out: Path, name: str, figures: Iterable[str]) -> list[Path]:
    return [
        out / f"{name}.json",
        *(out / f"{figure}.{ending}" for figure in figures for ending in PNG_AND_SVG),
    ]


def check_new(out: Path, name: str) -> None:
    """Refuse to overwrite a result, before any work is done."""
    for path in outputs(out, name, [name]):
        refuse_existing(path)


def publish(out: Path, name: str, signed: dict, result: dict, figures: dict) -> None:
    """Write the result and its figures, all or none."""
    with atomic_outputs(*outputs(out, name, figures)) as (file, *images):
        record = {"analysis": name, "signature": signed, "result": result}
        file.write(f"{json.dumps(record, indent=1, ensure_ascii=False)}\n".encode())
        drawn = [(figure, ending) for figure in figures.values() for ending in PNG_AND_SVG]
        for image, (figure, ending) in zip(images, drawn, strict=True):
            # Without a date the same result gives the same file.
            metadata = {"Date": None} if ending == "svg" else None
            figure.savefig(image, format=ending, metadata=metadata)


def read(path: Path) -> dict:
    """A result that `publish` wrote."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["analysis"], record["signature"], record["result"]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no result of an analysis") from error
    return record


def trained_length(data: Path, setting: str) -> int | None:
    """The longest training sequence that EXTRAPOLATE allows; none in the other settings."""
    if setting != "extrapolate":
        return None
    limit = results.read_parameters(data / "parameters.txt").get("EXTRAPOLATE_LIMIT")
    if limit is None:
        raise UserError(f"{data}/parameters.txt has no EXTRAPOLATE_LIMIT: --trained-length N")
    return int(limit)
