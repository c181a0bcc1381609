"""Raw text in, raw text out: Moses tokens, BPE, CTranslate2 on all cores, detokenized.

A model that was exported for a preprocessing of its own takes tokens and gives tokens instead.
"""

import dataclasses
import json
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from ..command_line import Parser, positive
from ..errors import UserError, one_line
from ..files import atomic_outputs, open_checked
from ..parallel import available_cores
from ..search import Search
from ..text import clean
from ..text.bpe import Encoder
from ..text.bpe_engines import CONTINUES
from ..text.detokenize import detokenize_joined
from ..text.separator import JOIN, SEPARATOR, split_joined
from ..text.tokenizer import tokenize
from .settings import CODES, VOCABULARIES, check_search, read_settings

log = logging.getLogger(__name__)

END, PADDING = "</s>", "<pad>"
SENTENCE_ENDS = frozenset([".", "!", "?", "...", "…", ";", ":", SEPARATOR])
CHUNK_LINES = 4000
CHUNK_BYTES = 4 << 20
LONGEST_LINE = 16 << 20  # bytes
BATCH_TOKENS = 2048


def import_ctranslate2():
    """CTranslate2, which not everybody needs."""
    try:
        return import_module("ctranslate2")
    except ModuleNotFoundError as error:
        raise UserError(
            "CTranslate2 is not installed: pip install 'shape-fairseq[ctranslate2]'"
        ) from error


class Model:
    """An exported model: from a line of text to subwords, to a translation, to text."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "auto"):
        ctranslate2 = import_ctranslate2()
        self.settings = read_settings(folder)
        self.max_source = self.settings.max_source_positions - 1  # and </s>
        self.search = self.settings.search
        self._folder = folder
        self._encoder = None if self.settings.tokens else Encoder(folder / CODES)
        try:
            # One thread for each of many batches beats many threads for one batch.
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device,
                inter_threads=threads or available_cores(),
                intra_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2 cannot load {folder}: {one_line(error)}") from error

    @cached_property
    def knows_separator(self) -> bool:
        """Whether sentences joined with <sep> are one input, as in INTERPOLATE."""
        for name in VOCABULARIES:
            path = self._folder / name
            if path.is_file():
                try:
                    return SEPARATOR in json.loads(path.read_text(encoding="utf-8"))
                except (ValueError, TypeError) as error:
                    raise UserError(f"{path} is damaged: export the model again") from error
        raise UserError(f"{self._folder} has no vocabulary: export the model again")

    def encode(self, text: str) -> list[str]:
        """The subwords of a line as data_prep makes them."""
        if self._encoder is None:
            return text.split()
        text, _ = clean.single_line(text)
        sentences = split_joined(text) if self.knows_separator else [text]
        source_lang = self.settings.source_lang
        tokenized = [tokenize(sentence, source_lang).encode() for sentence in sentences]
        encoded = self._encoder.encode(tokenized).decode().split("\n")[:-1]
        return JOIN.join(encoded).split() if any(encoded) else []

    def decode(self, pieces: list[list[str]]) -> str:
        """Text from the translated pieces of a line."""
        if self._encoder is None:
            return " ".join(token for piece in pieces for token in piece)
        target_lang = self.settings.target_lang
        texts = (JOIN.join(detokenize_joined(" ".join(p), target_lang)) for p in pieces)
        return " ".join(texts).strip()

    def length_limit(self, source: int, search: Search) -> int:
        """How long the translation of a sequence of `source` subwords may be."""
        limit = search.max_len_a * (source + 1) + search.max_len_b  # fairseq counts </s>
        return max(int(min(limit, self.settings.max_target_positions - 1)), 1)

    def submit(self, batch: list[list[str]], search: Search) -> list:
        """Start to translate a batch of sequences that have one and the same length limit."""
        (limit,) = {self.length_limit(len(sequence), search) for sequence in batch}
        return self._translator.translate_batch(
            batch,
            beam_size=search.beam,
            length_penalty=search.lenpen,
            max_decoding_length=limit,
            max_input_length=0,
            return_end_token=True,  # fairseq's length penalty counts it
            suppress_sequences=[[PADDING]],
            asynchronous=True,
        )


def cut(subwords: list[str], limit: int) -> list[list[str]]:
    """Pieces of at most `limit` subwords, cut after a sentence or else after a word."""
    pieces = []
    while len(subwords) > limit:
        places = range(limit, limit // 2, -1)
        after_sentence = (place for place in places if subwords[place - 1] in SENTENCE_ENDS)
        after_word = (p for p in places if not subwords[p - 1].endswith(CONTINUES))
        place = next(after_sentence, None) or next(after_word, limit)
        pieces.append(subwords[:place])
        subwords = subwords[place:]
    return [*pieces, subwords] if subwords else pieces


def batches(lengths: list[int], limits: list[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences of like length and equal limit, as many as fit into `max_tokens`.

    CTranslate2 has one limit for a batch. With a limit of its own a line has the same translation
    whatever stands around it.
    """
    batch: list[int] = []
    longest_first = sorted(range(len(lengths)), key=lambda i: (limits[i], lengths[i]), reverse=True)
    for index in longest_first:
        if batch and (
            limits[index] != limits[batch[0]] or (len(batch) + 1) * lengths[batch[0]] > max_tokens
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def without_end(hypothesis: list[str]) -> list[str]:
    return hypothesis[:-1] if hypothesis[-1:] == [END] else hypothesis


class Chunk:
    """Lines that are translated together; `texts` waits for their translations."""

    def __init__(
        self, model: Model, lines: list[tuple[int, bytes]], search: Search, limit: int, tokens: int
    ):
        self._model = model
        self._pieces_of_line = [self._pieces(number, line, limit) for number, line in lines]
        pieces = [piece for line in self._pieces_of_line for piece in line]
        self._results: list = [None] * len(pieces)
        lengths = [len(piece) for piece in pieces]
        limits = [model.length_limit(length, search) for length in lengths]
        for batch in batches(lengths, limits, tokens):
            submitted = model.submit([pieces[index] for index in batch], search)
            for index, result in zip(batch, submitted, strict=True):
                self._results[index] = result

    def _pieces(self, number: int, line: bytes, limit: int) -> list[list[str]]:
        text = clean.decode(line)
        if text is None:
            log.warning("line %s: not valid UTF-8, the wrong bytes are replaced", f"{number:,}")
            text = line.decode("utf-8", errors="replace")
        subwords = self._model.encode(text)
        pieces = cut(subwords, limit)
        if len(pieces) > 1:
            log.warning(
                "line %s: %s subwords, more than %s; translated in %s pieces",
                *(f"{count:,}" for count in (number, len(subwords), limit, len(pieces))),
            )
        return pieces

    def texts(self) -> Iterator[str]:
        """The translations, in the order of the lines; an empty line stays empty."""
        results = iter(self._results)
        for pieces in self._pieces_of_line:
            try:
                translated = [without_end(next(results).result().hypotheses[0]) for _ in pieces]
            except (RuntimeError, ValueError) as error:
                raise UserError(f"CTranslate2 cannot translate: {one_line(error)}") from error
            yield self._model.decode(translated)


def bounded_chunks(lines: Iterable[bytes], max_lines: int) -> Iterator[list[tuple[int, bytes]]]:
    """Consecutive lines with their numbers, as many as `max_lines` and CHUNK_BYTES allow."""
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        if chunk and size + len(line) > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((number, line))
        size += len(line)
        if len(chunk) == max_lines:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def translate_lines(
    model: Model,
    lines: Iterable[bytes],
    search: Search | None = None,
    limit: int | None = None,
    chunk_lines: int = CHUNK_LINES,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[str]:
    """Translate a stream of lines in bounded memory; the translations come in its order."""
    limit = min(limit or model.max_source, model.max_source)
    search = search or model.search
    check_search(search)
    waiting: deque[Chunk] = deque()
    # While one chunk is translated the next is tokenized. Who gives single lines waits for each.
    ahead = 1 if chunk_lines > 1 else 0
    for chunk in bounded_chunks(lines, chunk_lines):
        waiting.append(Chunk(model, chunk, search, limit, batch_tokens))
        if len(waiting) > ahead:
            yield from waiting.popleft().texts()
    while waiting:
        yield from waiting.popleft().texts()


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream, split at line feeds only; one of LONGEST_LINE is an error."""
    for number in count(1):
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"line {number:,} has more than {LONGEST_LINE >> 20} MB: is it text? Split it"
            )
        yield line.removesuffix(b"\n")


def remaining_lines(stream: BinaryIO) -> int | None:
    """How many lines a file still has; of a pipe nobody knows."""
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return None
    start = stream.tell()
    lines = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
    stream.seek(start)
    return lines


def make_parser() -> Parser:
    parser = Parser(
        prog="shape-fairseq translate",
        description="Translate raw text, a sentence a line, with a model that"
        " `shape-fairseq export --to ctranslate2` made; tokens, if it was exported with --tokens."
        " Empty lines stay empty; lines that are longer than the model allows are translated in"
        " pieces.",
        example="model < runs/demo/data/raw/test.en",
    )
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--input", type=Path, help="default: standard input")
    parser.add_argument("--output", type=Path, help="default: standard output")
    Search.add_options(parser, default="as exported")
    parser.add_argument(
        "--max-length",
        type=positive,
        metavar="N",
        help="translate lines of more than N subwords in pieces (default: what the model allows)",
    )
    parser.add_argument(
        "--chunk-lines",
        type=positive,
        metavar="N",
        help=f"lines to read before translating (default: {CHUNK_LINES}; on a terminal 1)",
    )
    parser.add_argument(
        "--batch-tokens", type=positive, default=BATCH_TOKENS, help="default: %(default)s"
    )
    parser.add_argument("--threads", type=positive, help="default: all cores")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


def main(arguments: list[str]) -> None:
    """Translate raw text with an exported model."""
    args = make_parser().parse_args(arguments)
    model = Model(args.model, args.threads, args.device)
    asked = dataclasses.asdict(Search.from_options(args))
    given = {name: value for name, value in asked.items() if value is not None}
    search = dataclasses.replace(model.search, **given)
    opened = open_checked(args.input) if args.input else nullcontext(sys.stdin.buffer)
    written = atomic_outputs(args.output) if args.output else nullcontext([sys.stdout.buffer])
    with opened as source, written as (output,):
        chunk_lines = args.chunk_lines or (1 if source.isatty() else CHUNK_LINES)
        texts = translate_lines(
            model, lines_of(source), search, args.max_length, chunk_lines, args.batch_tokens
        )
        bar = tqdm(
            desc="translate", total=remaining_lines(source), unit="line", disable=None, leave=False
        )
        with bar:
            for number, text in enumerate(texts, start=1):
                output.write(f"{text}\n".encode())
                bar.update()
                if number % chunk_lines == 0:
                    output.flush()
        output.flush()
