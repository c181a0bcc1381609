"""Appendix A: the distribution of sequence lengths of each dataset setting."""

from pathlib import Path

from ..data_folder import SETTINGS, STATISTICS, languages
from ..errors import UserError
from ..text import statistics
from . import base

NAME = "lengths"


def compute(data: Path) -> dict:
    """The statistics that data_prep has written, or that it makes of the text now."""
    pair = languages(data)
    if (data / STATISTICS).exists():
        described = statistics.read(data / STATISTICS)
    else:
        folders = [data / "text" / setting for setting in SETTINGS]
        described = {
            folder.name: statistics.describe_folder(folder, pair)
            for folder in folders
            if folder.is_dir()
        }
    if not described:
        raise UserError(f"{data} has no text/SETTING: run data_prep/prepare_*.sh")
    return described


def plot(result: dict, source_lang: str) -> dict:
    """data_prep's figure, drawn with the colours of the others."""
    from . import figures  # noqa: F401 - sets the style

    return {NAME: statistics.draw(result, source_lang)}


def main(arguments: list[str]) -> None:
    """The distribution of source sequence lengths (appendix A)."""
    parser = base.command(NAME, main.__doc__, "--data runs/demo/data --out figures")
    base.add_data(parser)
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    signature = base.signature(args.data, {})
    source_lang, _ = languages(args.data)
    result = compute(args.data)
    base.publish(args.out, NAME, signature, result, plot(result, source_lang))
    for setting, subsets in result.items():
        side = subsets["train"][source_lang]
        print(
            f"{setting}: {side['lines']:,} training sequences of {side['mean']:.1f} subwords on"
            f" average, {side['max']} at most"
        )
