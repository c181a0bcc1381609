"""The paper's dataset settings, made from any BPE-encoded parallel text."""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shape_fairseq.command_line import Parser, positive
from shape_fairseq.data_folder import SETTINGS, subset_names
from shape_fairseq.errors import UserError, run
from shape_fairseq.files import atomic_directory, atomic_outputs, read_pairs
from shape_fairseq.parallel import chunks, map_chunks
from shape_fairseq.text.clean import OTHER_LINE_BREAKS, decode
from shape_fairseq.text.separator import BOUNDARY, JOIN, SEPARATOR, split_joined

log = logging.getLogger(__name__)

# The longest sequence, its end included, that the recipes' models take: fairseq's default, and what
# recipes/interpolate.sh says. fairseq-train ends at its first validation if there is a longer one.
MAX_POSITIONS = {"vanilla": 1024, "extrapolate": 1024, "interpolate": 4096}

Pair = tuple[str, str]


def read_text_pairs(prefix: Path, langs: tuple[str, str]) -> Iterator[Pair]:
    """Pairs of a parallel text in which no line can be mistaken for two, or for a joined one."""
    paths = [Path(f"{prefix}.{lang}") for lang in langs]
    for number, pair in enumerate(read_pairs(*paths), start=1):
        for path, line in zip(paths, pair, strict=True):
            if problem := _problem(line):
                raise UserError(f"{path} line {number:,}: {problem}")
        yield pair[0].decode("utf-8"), pair[1].decode("utf-8")


def _problem(line: bytes) -> str | None:
    text = decode(line)
    if text is None:
        return "not valid UTF-8"
    if OTHER_LINE_BREAKS.search(text):
        return "a carriage return or another line break inside the line: tokenize the text first"
    return None


def extrapolate(pairs: Iterable[Pair], limit: int) -> Iterator[Pair]:
    """The pairs in which neither side is longer than `limit` subwords."""
    return (pair for pair in pairs if max(len(side.split()) for side in pair) <= limit)


def interpolate(pairs: Iterable[Pair], group_size: int) -> Iterator[Pair]:
    """Neighbouring pairs joined to long ones; the last group may be shorter, nothing is dropped."""
    numbered = enumerate(pairs, start=1)
    for group in chunks(numbered, group_size):
        for number, pair in group:
            if any(BOUNDARY.search(side) for side in pair):
                raise UserError(
                    f"pair {number:,} contains {SEPARATOR} already: it would look like a boundary"
                )
        yield tuple(JOIN.join(pair[side] for _, pair in group) for side in (0, 1))


def check_positions(pairs: Iterable[Pair], title: str, positions: int) -> Iterator[Pair]:
    """The same pairs; one that is too long for the model to evaluate is refused."""
    for number, pair in enumerate(pairs, start=1):
        longest = max(len(side.split()) for side in pair) + 1
        if longest > positions:
            raise UserError(
                f"{title} line {number:,} has {longest:,} subwords with its end, more than"
                f" {positions:,} positions, and fairseq would stop there: shorten or remove it in"
                f" the raw text, or run with MAX_POSITIONS={longest} and train with"
                f" --max-source-positions {longest} --max-target-positions {longest}"
            )
        yield pair


def swap(line: str) -> str:
    """X2 ... Xn, X1 from X1 ... Xn: the swapped order of the paper's experiment 1."""
    first, *others = split_joined(line)
    return JOIN.join([*others, first])


def sample(pairs: Iterable[Pair], size: int, seed: int) -> list[Pair]:
    """`size` random pairs in their order in the text, in one pass over it."""
    generator = random.Random(seed)
    chosen: list[tuple[int, Pair]] = []
    for number, pair in enumerate(pairs):
        if len(chosen) < size:
            chosen.append((number, pair))
        # random() gives the same numbers on every Python version, randrange need not.
        elif (place := int(generator.random() * (number + 1))) < size:
            chosen[place] = (number, pair)
    return [pair for _, pair in sorted(chosen)]


def write_pairs(pairs: Iterable[Pair], prefix: Path, langs: tuple[str, str]) -> int:
    """Write a parallel text and return its number of pairs."""
    written = 0
    with atomic_outputs(*(Path(f"{prefix}.{lang}") for lang in langs)) as (source, target):
        for source_line, target_line in pairs:
            source.write(f"{source_line}\n".encode())
            target.write(f"{target_line}\n".encode())
            written += 1
    return written


def make_setting(
    setting: str,
    source: Path,
    output: Path,
    langs: tuple[str, str],
    limit: int,
    group_size: int,
    max_positions: int | None = None,
) -> None:
    """Write one setting of all subsets of a folder; only `train` is ever filtered."""
    counts: Counter = Counter()
    with atomic_directory(output) as folder:
        for name in subset_names(source, langs):
            pairs = _counted(read_text_pairs(source / name, langs), counts, name)
            if setting == "interpolate":
                pairs = interpolate(pairs, group_size)
            elif setting == "extrapolate" and name == "train":
                pairs = extrapolate(pairs, limit)
            if max_positions and name != "train":
                pairs = check_positions(pairs, f"{setting}: {source / name}", max_positions)
            written = write_pairs(pairs, folder / name, langs)
            summary = _summary(setting, counts[name], written, group_size)
            log.info("%s %s: %s", setting, name, summary)


def make_all(
    source: Path,
    output: Path,
    langs: tuple[str, str],
    limit: int,
    group_size: int,
    max_positions: Mapping[str, int] | None = None,
) -> None:
    """Write the three settings at the same time, each into its own folder."""
    positions = max_positions or {}
    jobs = [
        (setting, source, output / setting, langs, limit, group_size, positions.get(setting))
        for setting in SETTINGS
    ]
    for _ in map_chunks(_make_settings, jobs, chunk_size=1):
        pass


def _make_settings(jobs: list[tuple]) -> None:
    for job in jobs:
        make_setting(*job)


def _counted(pairs: Iterable[Pair], counts: Counter, name: str) -> Iterator[Pair]:
    for pair in pairs:
        counts[name] += 1
        yield pair


def _summary(setting: str, read: int, written: int, group_size: int) -> str:
    if setting == "interpolate":
        rest = read % group_size
        last = f", the last one of {rest} pairs" if rest else ""
        return f"{read:,} pairs joined to {written:,} sequences{last}"
    return f"{written:,} of {read:,} pairs, {read - written:,} dropped for their length"


def make_swapped(
    source: Path, output: Path, langs: tuple[str, str], size: int, group_size: int, seed: int
) -> None:
    """Write a sample of complete groups of a joined text, in original and in swapped order."""
    pairs = read_text_pairs(source, langs)
    complete = (p for p in pairs if len(split_joined(p[0])) == group_size)
    originals = sample(complete, size, seed)
    if not originals:
        raise UserError(f"{source} has no sequence of {group_size} sentences to swap")
    with atomic_directory(output) as folder:
        write_pairs(originals, folder / "original", langs)
        write_pairs([(swap(s), swap(t)) for s, t in originals], folder / "swapped", langs)
    log.info("swapped: %s sequences of %d sentences", f"{len(originals):,}", group_size)


def main() -> None:
    parser = Parser(
        prog="python -m data_prep.settings",
        description=__doc__,
        example="all --input runs/demo/data/encoded --output settings --limit 12",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="SETTING")
    for setting, what in {
        "vanilla": "the text as it is",
        "extrapolate": "training pairs of at most --limit subwords; other subsets as they are",
        "interpolate": f"each --group-size neighbouring pairs joined with ' {SEPARATOR} '",
        "all": "these three, in a folder each",
        "swapped": "a sample of an interpolated text as original and as X2 ... Xn, X1",
    }.items():
        command = commands.add_parser(setting, help=what, description=what)
        source = "PREFIX" if setting == "swapped" else "DIR"
        command.add_argument(
            "--input",
            required=True,
            type=Path,
            metavar=source,
            help=f"{source} of BPE-encoded parallel text",
        )
        command.add_argument("--output", required=True, type=Path, metavar="DIR")
        command.add_argument("--langs", nargs=2, default=("en", "de"), metavar=("SRC", "TGT"))
        command.add_argument("--limit", type=positive, default=50, help="default: %(default)s")
        command.add_argument("--group-size", type=positive, default=10, help="default: %(default)s")
        if setting == "all":
            command.add_argument(
                "--max-positions",
                type=positive,
                nargs="?",
                const=0,
                metavar="N",
                help="refuse longer validation and test sequences; without N, those that the"
                f" recipes' models do not take ({MAX_POSITIONS})",
            )
        if setting == "swapped":
            command.add_argument("--sample", type=positive, default=10_000, help="default: 10000")
            command.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    args = parser.parse_args()
    langs = tuple(args.langs)
    if args.command == "swapped":
        make_swapped(args.input, args.output, langs, args.sample, args.group_size, args.seed)
    elif args.command == "all":
        limits = None
        if args.max_positions is not None:
            limits = {name: args.max_positions or MAX_POSITIONS[name] for name in SETTINGS}
        make_all(args.input, args.output, langs, args.limit, args.group_size, limits)
    else:
        make_setting(args.command, args.input, args.output, langs, args.limit, args.group_size)


if __name__ == "__main__":
    run(main)
