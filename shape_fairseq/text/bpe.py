"""Joint byte-pair encoding: merges learned from counted words, and applied to text."""

import logging
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from ..command_line import Parser
from ..errors import UserError, run
from ..files import atomic_outputs, progress_bar, read_lines
from ..parallel import map_chunks
from .bpe_engines import CONTINUES, Engine, best_engine
from .bpe_learning import learn_merges
from .clean import decode

log = logging.getLogger(__name__)

MAX_CACHED_WORDS = 500_000


def count_words(lines: list[bytes]) -> tuple[Counter, int]:
    """How often each word occurs in a chunk of tokenized lines, and how many lines it has."""
    words: Counter = Counter()
    for line in lines:
        words.update(line.decode("utf-8").split())
    return words, len(lines)


def learn(inputs: Iterable[Path], merges: int, codes: Path, workers: int | None = None) -> None:
    """Learn merges from all inputs together and write them in fastBPE's format."""
    words: Counter = Counter()
    for path in inputs:
        with progress_bar(f"count words of {path}", path) as bar:
            for counts, lines in map_chunks(count_words, read_lines(path), workers):
                words.update(counts)
                bar.update(lines)
    if not words:
        raise UserError("there are no words to learn BPE from: the input is empty")
    learned = islice(learn_merges(words), merges)
    bar = {"desc": "learn merges", "unit": "merge", "disable": None, "leave": False}
    with atomic_outputs(codes) as (file,):
        pairs = list(tqdm(learned, total=merges, **bar))
        # fastBPE wants a count as third column; it does not use it.
        file.writelines(f"{first} {second} 1\n".encode() for first, second in pairs)
    log.info("%s: %s merges from %s different words", codes, f"{len(pairs):,}", f"{len(words):,}")


class Encoder:
    """An engine with a cache of words, because most words of a text are a few thousand."""

    def __init__(self, codes: Path, engine: type[Engine] | None = None) -> None:
        check_codes(codes)
        self._engine = (engine or best_engine())(codes)
        self._cache: dict[str, str] = {}

    def encode(self, lines: list[bytes]) -> bytes:
        """Tokenized lines to lines of subwords; an empty line stays empty."""
        sentences = [line.decode("utf-8").split() for line in lines]
        if len(self._cache) > MAX_CACHED_WORDS:
            self._cache.clear()
        cache = self._cache
        new = list({word for words in sentences for word in words if word not in cache})
        cache.update(zip(new, self._engine.apply(new), strict=True))
        return "".join(" ".join([cache[w] for w in words]) + "\n" for words in sentences).encode()


def check_codes(codes: Path) -> None:
    """fastBPE aborts the process on a file that it cannot read, so look first."""
    for number, line in enumerate(read_lines(codes), start=1):
        text = decode(line)
        if text is None or len(text.split(" ")) != 3:
            raise UserError(
                f"{codes} line {number}: not fastBPE codes (two symbols and a count);"
                " make them with python -m shape_fairseq.text.bpe learn"
            )


@lru_cache
def encoder(codes: Path, engine: type[Engine] | None = None) -> Encoder:
    """The encoder of a codes file, made once for each process."""
    return Encoder(codes, engine)


def encode_chunk(
    lines: list[bytes], codes: Path, engine: type[Engine] | None = None
) -> tuple[bytes, int]:
    """Encode a chunk of lines and say how many they were."""
    return encoder(codes, engine).encode(lines), len(lines)


def apply(
    codes: Path,
    source: Path,
    output: Path,
    workers: int | None = None,
    engine: type[Engine] | None = None,
) -> None:
    """Encode a tokenized file with learned codes, on all cores, with fastBPE if it is there."""
    check_codes(codes)
    work = partial(encode_chunk, codes=codes, engine=engine)
    with atomic_outputs(output) as (file,), progress_bar(f"apply BPE to {source}", source) as bar:
        for encoded, lines in map_chunks(work, read_lines(source), workers):
            file.write(encoded)
            bar.update(lines)


def remove(line: str) -> str:
    """Join subwords back to words: the exact inverse of applying the codes."""
    return (line + " ").replace(CONTINUES + " ", "").removesuffix(" ")


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.text.bpe",
        description=__doc__,
        example="learn --input runs/demo/data/tokenized/train.* --merges 500 --codes codes",
    )
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    commands = parser.add_subparsers(dest="command", required=True)
    learning = commands.add_parser("learn", help="learn joint codes from tokenized files")
    learning.add_argument("--input", nargs="+", required=True, type=Path)
    learning.add_argument("--merges", type=int, default=32000, help="default: %(default)s")
    learning.add_argument("--codes", required=True, type=Path)
    applying = commands.add_parser("apply", help="encode tokenized files")
    applying.add_argument("--codes", required=True, type=Path)
    applying.add_argument("--input", nargs="+", required=True, type=Path)
    applying.add_argument("--output", required=True, type=Path, metavar="DIR")
    args = parser.parse_args()
    if args.command == "learn":
        learn(args.input, args.merges, args.codes, args.workers)
    else:
        for path in args.input:
            apply(args.codes, path, args.output / path.name, args.workers)


if __name__ == "__main__":
    run(main)
