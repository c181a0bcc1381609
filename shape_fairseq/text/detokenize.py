"""From model output back to text: BPE removed, Moses detokenized, joined sentences kept apart."""

import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from sacremoses import MosesDetokenizer

from ..command_line import Parser
from ..errors import UserError, run
from ..files import atomic_outputs, read_lines
from ..parallel import map_chunks
from . import bpe
from .separator import JOIN, SEPARATOR, split_joined

# How the old wmt16_en_de archive writes the hyphen of a word that it had split there.
ARCHIVE_HYPHEN = " ##AT##-##AT## "


@lru_cache
def moses(lang: str) -> MosesDetokenizer:
    """The detokenizer of a language, made once for each process."""
    return MosesDetokenizer(lang=lang)


def detokenize(line: str, lang: str) -> str:
    """One BPE-encoded sentence as the text that a person would write."""
    words = bpe.remove(line).replace(ARCHIVE_HYPHEN, "-").split()
    return moses(lang).detokenize(words)


def detokenize_joined(line: str, lang: str) -> list[str]:
    """Each sentence of a joined line on its own, so that no rule reaches across a boundary."""
    return [detokenize(sentence, lang) for sentence in split_joined(line)]


def detokenize_chunk(lines: list[bytes], lang: str, split: bool) -> bytes:
    """A chunk of lines; joined sentences become lines of their own, or stay joined."""
    separator = "\n" if split else JOIN
    texts = (separator.join(detokenize_joined(line.decode("utf-8"), lang)) for line in lines)
    return "".join(f"{text}\n" for text in texts).encode()


def detokenize_lines(lines: Iterator[bytes], lang: str, split: bool, workers: int | None = None):
    """Detokenize a stream of lines on all cores."""
    return map_chunks(partial(detokenize_chunk, lang=lang, split=split), lines, workers)


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.text.detokenize",
        description=__doc__,
        example="--lang de --input runs/demo/data/text/vanilla/test.de",
    )
    parser.add_argument("--lang", default="de", help="default: %(default)s")
    parser.add_argument("--input", type=Path, help="default: standard input")
    parser.add_argument("--output", type=Path, help="default: standard output")
    parser.add_argument(
        "--split",
        action="store_true",
        help=f"write the sentences between {SEPARATOR} on lines of their own",
    )
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    args = parser.parse_args()
    stdin = (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    lines = read_lines(args.input) if args.input else stdin
    try:
        texts = detokenize_lines(lines, args.lang, args.split, args.workers)
        if args.output:
            with atomic_outputs(args.output) as (file,):
                file.writelines(texts)
        else:
            sys.stdout.buffer.writelines(texts)
    except UnicodeDecodeError as error:
        raise UserError(f"the input is not valid UTF-8: {error}") from error


if __name__ == "__main__":
    run(main)
