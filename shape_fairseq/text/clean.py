"""What is repaired in a line, and which training pairs are dropped."""

import logging
import re
from pathlib import Path

from ..command_line import Parser
from ..errors import UserError, run
from ..files import atomic_outputs, read_pairs
from .separator import BOUNDARY, SEPARATOR

log = logging.getLogger(__name__)

# Python, fairseq or an editor would break a line at these; only the line feed ends a line here.
BYTE_ORDER_MARK = "\ufeff"
# No word of a language is that long, and what has no spaces takes the tokenizer and BPE forever.
MAX_WORD_CHARACTERS = 1000
# How <sep> comes back from Moses, which takes it apart: text must not look like a boundary.
HARMLESS_SEPARATOR = " ".join(re.findall(r"\w+|\W", SEPARATOR))
OTHER_LINE_BREAKS = re.compile("[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


def decode(line: bytes) -> str | None:
    """The text of a line, or None where it is not valid UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def single_line(text: str) -> tuple[str, str | None]:
    """The text without byte order marks and line ends of elsewhere, and what was repaired."""
    if BYTE_ORDER_MARK in text:
        text, repair = single_line(text.replace(BYTE_ORDER_MARK, ""))
        return text, repair or "byte order mark"
    if not OTHER_LINE_BREAKS.search(text):
        return text, None
    without_cr = text.removesuffix("\r")
    if not OTHER_LINE_BREAKS.search(without_cr):
        return without_cr, "CR LF line end"
    return OTHER_LINE_BREAKS.sub(" ", without_cr), "line break inside a line"


def longest_word(text: str) -> int:
    """The number of characters of the longest word."""
    return max(map(len, text.split()), default=0)


def reason_to_drop(source_tokens: int, target_tokens: int, max_tokens: int) -> str | None:
    """Why a training pair is dropped, or None to keep it."""
    if min(source_tokens, target_tokens) == 0:
        return "empty on one side" if source_tokens + target_tokens else "empty on both sides"
    if max(source_tokens, target_tokens) > max_tokens:
        return f"longer than {max_tokens} tokens"
    return None


def clean_corpus(prefix: Path, output: Path, langs: tuple[str, str]) -> int:
    """Write the raw text with a sentence a line, and no <sep>; return the repaired lines."""
    repaired = 0
    paths = [Path(f"{prefix}.{lang}") for lang in langs]
    with atomic_outputs(*(Path(f"{output}.{lang}") for lang in langs)) as files:
        for number, pair in enumerate(read_pairs(*paths), start=1):
            for line, file, path in zip(pair, files, paths, strict=True):
                text = decode(line)
                if text is None:
                    raise UserError(f"{path} line {number:,} is not valid UTF-8: repair it")
                line_text, repair = single_line(text)
                harmless = BOUNDARY.sub(HARMLESS_SEPARATOR, line_text)
                repaired += repair is not None or harmless != line_text
                file.write(f"{harmless}\n".encode())
    if repaired:
        log.info("%s: %s lines repaired", output, f"{repaired:,}")
    return repaired


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.text.clean",
        description=__doc__,
        example="--input runs/demo/data/raw/test --output cleaned",
    )
    parser.add_argument("--input", nargs="+", required=True, type=Path, metavar="PREFIX")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument("--langs", nargs=2, default=("en", "de"), metavar=("SRC", "TGT"))
    args = parser.parse_args()
    for prefix in args.input:
        clean_corpus(prefix, args.output / prefix.name, tuple(args.langs))


if __name__ == "__main__":
    run(main)
