"""Moses tokenization of parallel text on all cores; source and target always go together."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path

from sacremoses import MosesTokenizer

from ..command_line import Parser
from ..errors import UserError, run
from ..files import atomic_outputs, progress_bar, read_pairs
from ..parallel import map_chunks
from . import clean

log = logging.getLogger(__name__)

NumberedPair = tuple[int, tuple[bytes, bytes]]


class FastMosesTokenizer(MosesTokenizer):
    """sacremoses' tokenizer, giving the same tokens without rebuilding its character sets."""

    def __init__(self, lang: str) -> None:
        super().__init__(lang=lang)
        self.NONBREAKING_PREFIXES: frozenset[str] = frozenset(self.NONBREAKING_PREFIXES)
        self._lower = frozenset(self.IsLower)
        self._alpha = frozenset(self.IsAlpha)

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._alpha.isdisjoint(text)


@lru_cache
def moses(lang: str) -> FastMosesTokenizer:
    """The tokenizer of a language, made once for each process."""
    return FastMosesTokenizer(lang)


def tokenize(text: str, lang: str) -> str:
    """Moses tokens of a line, escaped as Moses does, hyphenated words kept whole."""
    return moses(lang).tokenize(text, return_str=True, aggressive_dash_splits=False).strip()


def tokenize_pairs(
    pairs: list[NumberedPair], langs: tuple[str, str], max_tokens: int | None
) -> tuple[bytes, bytes, Counter]:
    """Tokenize a chunk; without `max_tokens` it is evaluation text: no pair is dropped."""
    kept: list[tuple[str, str]] = []
    counts: Counter = Counter(pairs=len(pairs))
    for number, pair in pairs:
        decoded = [clean.decode(line) for line in pair]
        texts = [text for text in decoded if text is not None]
        if len(texts) < len(pair):
            if max_tokens is None:
                raise UserError(f"line {number:,} is not valid UTF-8: repair it")
            counts["dropped: not valid UTF-8"] += 1
            continue
        if (longest := max(map(clean.longest_word, texts))) > clean.MAX_WORD_CHARACTERS:
            what = f"longer than {clean.MAX_WORD_CHARACTERS:,} characters"
            if max_tokens is None:
                raise UserError(f"line {number:,} has a word {what} ({longest:,}): repair it")
            counts[f"dropped: a word {what}"] += 1
            continue
        tokens = []
        for text, lang in zip(texts, langs, strict=True):
            text, repair = clean.single_line(text)
            if repair:
                counts[f"repaired: {repair}"] += 1
            tokens.append(tokenize(text, lang))
        lengths = [len(line.split()) for line in tokens]
        if max_tokens is None:
            counts["kept although empty on one side"] += min(lengths) == 0
        elif reason := clean.reason_to_drop(lengths[0], lengths[1], max_tokens):
            counts[f"dropped: {reason}"] += 1
            continue
        kept.append((tokens[0], tokens[1]))
    counts["kept"] = len(kept)
    source, target = ("".join(pair[side] + "\n" for pair in kept) for side in (0, 1))
    return source.encode(), target.encode(), counts


def tokenize_corpus(
    inputs: Iterable[Path],
    output: Path,
    langs: tuple[str, str],
    max_tokens: int | None,
    workers: int | None = None,
) -> Counter:
    """Tokenize and clean the corpora `PREFIX.lang` into one; the counts say what happened."""
    totals: Counter = Counter()
    names = [f"{output}.{lang}" for lang in langs]
    with atomic_outputs(*map(Path, names)) as (source_file, target_file):
        for prefix in inputs:
            with progress_bar(f"tokenize {prefix}", Path(f"{prefix}.{langs[0]}")) as bar:
                for source, target, counts in _tokenized(prefix, langs, max_tokens, workers):
                    source_file.write(source)
                    target_file.write(target)
                    totals += counts
                    bar.update(counts["pairs"])
        if not totals["kept"]:
            raise UserError(f"no pair is left for {output}: look at the input text")
    for what, count in sorted(totals.items()):
        log.info("%s: %s %s", output, f"{count:,}", what)
    return totals


def _tokenized(
    prefix: Path, langs: tuple[str, str], max_tokens: int | None, workers: int | None
) -> Iterator[tuple[bytes, bytes, Counter]]:
    pairs = enumerate(read_pairs(*(Path(f"{prefix}.{lang}") for lang in langs)), start=1)
    work = partial(tokenize_pairs, langs=langs, max_tokens=max_tokens)
    try:
        yield from map_chunks(work, pairs, workers)
    except UserError as error:
        raise UserError(f"{prefix}: {error}") from error


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.text.tokenizer",
        description=__doc__,
        example="--input runs/demo/data/raw/train --output tokenized/train",
    )
    parser.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="PREFIX",
        type=Path,
        help="raw parallel texts PREFIX.SRC and PREFIX.TGT (or .gz)",
    )
    parser.add_argument("--output", required=True, metavar="PREFIX", type=Path)
    parser.add_argument("--langs", nargs=2, default=("en", "de"), metavar=("SRC", "TGT"))
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="training text: keep pairs of 1 to N tokens and drop pairs that are"
        " not valid UTF-8 (default: evaluation text, nothing is dropped)",
    )
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    args = parser.parse_args()
    tokenize_corpus(args.input, args.output, tuple(args.langs), args.max_tokens, args.workers)


if __name__ == "__main__":
    run(main)
