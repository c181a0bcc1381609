"""Appendix A: the distribution of sequence lengths of each dataset setting."""

import json

from ..data_folder import SETTINGS
from ..errors import UserError
from ..text import statistics
from . import base, figures  # noqa: F401 - figures sets the style

NAME = "lengths"
LANGUAGES = ("en", "de")


def compute(args) -> dict:
    """The statistics that data_prep has written, or that it makes of the text now."""
    written = args.data / "statistics" / "statistics.json"
    if written.exists():
        found = json.loads(written.read_text(encoding="utf-8"))
    else:
        folders = [args.data / "text" / setting for setting in SETTINGS]
        found = {
            folder.name: statistics.describe_folder(folder, LANGUAGES)
            for folder in folders
            if folder.is_dir()
        }
    if not found:
        raise UserError(f"{args.data} has no text/SETTING: run data_prep/prepare_*.sh")
    return found


def plot(result: dict) -> dict:
    """data_prep's figure, drawn with the colours of the others."""
    return {NAME: statistics.draw(result, LANGUAGES[0])}


def main(arguments: list[str]) -> None:
    """The distribution of source sequence lengths (appendix A)."""
    parser = base.command(NAME, main.__doc__)
    base.add_data(parser)
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    signed = base.signature(args.data, {})
    result = compute(args)
    base.publish(args.out, NAME, signed, result, plot(result))
    for setting, subsets in result.items():
        side = subsets["train"][LANGUAGES[0]]
        print(
            f"{setting}: {side['lines']:,} training sequences of {side['mean']:.1f} subwords on"
            f" average, {side['max']} at most"
        )
