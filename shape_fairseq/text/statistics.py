"""Pairs, tokens and lengths of each setting, as JSON and as the paper's length figure."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from shape_fairseq.errors import UserError, run
from shape_fairseq.files import atomic_outputs, progress_bar, read_lines
from shape_fairseq.parallel import map_chunks

from .. import records
from ..command_line import Parser
from ..data_folder import SETTINGS, subset_names

log = logging.getLogger(__name__)

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
FIGURE_BARS = 50


def count_lengths(lines: list[bytes]) -> Counter:
    """How many lines of a chunk have which number of tokens."""
    return Counter(len(line.split()) for line in lines)


def length_counts(path: Path, workers: int | None = None) -> Counter:
    """How many lines of a file have which number of tokens."""
    totals: Counter = Counter()
    with progress_bar(f"measure {path}", path) as bar:
        for counts in map_chunks(count_lengths, read_lines(path), workers):
            totals.update(counts)
            bar.update(counts.total())
    return totals


def percentile(lengths: Counter, percent: int) -> int:
    """The smallest length that at least `percent` % of the lines do not exceed."""
    ordered = sorted(lengths)
    reached = accumulate(lengths[length] for length in ordered)
    return next(
        n
        for n, lines in zip(ordered, reached, strict=True)
        if lines * 100 >= percent * lengths.total()
    )


def describe(lengths: Counter) -> dict:
    """Tokens, mean, extremes, percentiles and the whole distribution of the lengths of a text."""
    if not lengths:
        raise UserError("there are no lines to measure")
    tokens = sum(length * lines for length, lines in lengths.items())
    return {
        "lines": lengths.total(),
        "tokens": tokens,
        "mean": tokens / lengths.total(),
        "min": min(lengths),
        "max": max(lengths),
        "percentiles": {str(p): percentile(lengths, p) for p in PERCENTILES},
        "lengths": {str(length): lengths[length] for length in sorted(lengths)},
    }


def describe_folder(folder: Path, langs: tuple[str, str], workers: int | None = None) -> dict:
    """The statistics of every subset of a folder, source and target."""
    subsets = {}
    for name in subset_names(folder, langs):
        sides = [describe(length_counts(folder / f"{name}.{lang}", workers)) for lang in langs]
        subsets[name] = {"pairs": sides[0]["lines"], **dict(zip(langs, sides, strict=True))}
    return subsets


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The file statistics.json."""

    FORMAT: ClassVar[int] = 1

    settings: dict[str, dict[str, Any]]  # "vanilla": {"train": {"pairs": 9, "en": {...}}}


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The statistics of every setting, as `main` wrote them."""
    what = "the statistics of data_prep"
    fields = records.load_json(path, what)
    if records.FORMAT not in fields:  # from before there were versions: only the settings
        fields = {"settings": fields}
    records.check_format(fields, Statistics.FORMAT, path, what)
    records.check(fields, Statistics, path, what)
    return fields["settings"]


def share_longer(lengths: dict[str, int], limit: int) -> float:
    """Which share of the lines has more than `limit` tokens."""
    return sum(n for length, n in lengths.items() if int(length) > limit) / sum(lengths.values())


def bars(lengths: dict[str, int], width: int) -> Iterator[tuple[int, int]]:
    """The lines in each interval of `width` lengths, as (start of the interval, lines)."""
    binned: Counter = Counter()
    for length, lines in lengths.items():
        binned[int(length) // width * width] += lines
    yield from sorted(binned.items())


def draw(statistics: dict, source_lang: str):
    """The distribution of training source lengths as a figure, one panel for each setting."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("the figure needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = [setting for setting in SETTINGS if setting in statistics]
    figure, axes = plt.subplots(1, len(settings), figsize=(4 * len(settings), 3), squeeze=False)
    for axis, setting in zip(axes[0], settings, strict=True):
        side = statistics[setting]["train"][source_lang]
        width = max(1, side["max"] // FIGURE_BARS)
        starts, lines = zip(*bars(side["lengths"], width), strict=True)
        axis.bar(starts, lines, width=width, align="edge")
        axis.set_title(f"{setting.capitalize()}: {side['lines']:,} pairs, mean {side['mean']:.1f}")
        axis.set_xlabel("source length (subwords)")
        axis.set_xlim(left=0)
        axis.yaxis.set_major_formatter("{x:,.0f}")
    axes[0][0].set_ylabel("training sequences")
    return figure


def plot(statistics: dict, source_lang: str, path: Path) -> None:
    """Write the figure of the lengths."""
    figure = draw(statistics, source_lang)
    figure.tight_layout()
    with atomic_outputs(path) as (file,):
        figure.savefig(file, format="png", dpi=150)


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.text.statistics",
        description=__doc__,
        example="--input runs/demo/data/text --json lengths.json",
    )
    parser.add_argument(
        "--input",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder with a folder of parallel text for each setting",
    )
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument("--figure", type=Path, help="PNG (needs matplotlib)")
    parser.add_argument("--langs", nargs=2, default=("en", "de"), metavar=("SRC", "TGT"))
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    args = parser.parse_args()
    langs = tuple(args.langs)
    folders = [args.input / setting for setting in SETTINGS if (args.input / setting).is_dir()]
    if not folders:
        raise UserError(f"{args.input} has none of the folders {', '.join(SETTINGS)}")
    statistics = {folder.name: describe_folder(folder, langs, args.workers) for folder in folders}
    if args.figure:
        plot(statistics, langs[0], args.figure)
    with atomic_outputs(args.json) as (file,):
        file.write(records.to_json(Statistics(statistics)))
    for setting, subsets in statistics.items():
        for name, subset in subsets.items():
            means = " and ".join(f"{subset[lang]['mean']:.1f} {lang}" for lang in langs)
            log.info(
                "%s %s: %s pairs, %s tokens on average",
                setting,
                name,
                f"{subset['pairs']:,}",
                means,
            )


if __name__ == "__main__":
    run(main)
