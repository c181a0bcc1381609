"""Raw text in, raw text out: Moses tokens, BPE, CTranslate2 on all cores, detokenized."""

import argparse
import json
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from ..command_line import positive
from ..errors import UserError
from ..files import atomic_outputs, open_text, sha256
from ..parallel import available_cores, chunks
from ..text import clean
from ..text.bpe import CONTINUES, Encoder
from ..text.detokenize import detokenize_joined
from ..text.separator import JOIN, SEPARATOR, split_joined
from ..text.tokenizer import tokenize

log = logging.getLogger(__name__)

SETTINGS_FILE = "shape_fairseq.json"
FORMAT = 1
END, PADDING = "</s>", "<pad>"
SENTENCE_ENDS = frozenset([".", "!", "?", "...", "…", ";", ":", SEPARATOR])
CHUNK_LINES = 2000
BATCH_TOKENS = 2048


def import_ctranslate2():
    """CTranslate2, which not everybody needs."""
    try:
        return import_module("ctranslate2")
    except ModuleNotFoundError as error:
        raise UserError(
            "CTranslate2 is not installed: pip install 'shape-fairseq[ctranslate2]'"
        ) from error


@dataclass(frozen=True)
class Search:
    """How translations are searched for; the names are those of fairseq-generate."""

    beam: int
    lenpen: float
    max_len_a: float
    max_len_b: int


def read_settings(folder: Path) -> dict:
    """The settings of an exported folder, of which every file must be as it was written."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: make {folder} with shape-fairseq export")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        found = settings["format"], settings["files"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: export the model again") from error
    if found[0] != FORMAT:
        raise UserError(f"{folder} was made by another version: export the model again")
    for name, checksum in found[1]:
        file = folder / name
        if not file.is_file() or sha256(file) != checksum:
            raise UserError(f"{file} is missing or damaged: export the model again")
    return settings


class Model:
    """An exported model: from a line of text to subwords, to a translation, to text."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "auto"):
        ctranslate2 = import_ctranslate2()
        self.settings = read_settings(folder)
        self.source_lang: str = self.settings["source_lang"]
        self.target_lang: str = self.settings["target_lang"]
        self.max_target: int = self.settings["max_target_positions"] - 1
        self.max_source: int = self.settings["max_source_positions"] - 1  # and </s>
        self.search = Search(**self.settings["search"])
        self._encoder = Encoder(folder / "codes")
        try:
            # One thread for each of many batches beats many threads for one batch.
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device,
                inter_threads=threads or available_cores(),
                intra_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"CTranslate2 cannot load {folder}: {reason}") from error
        self._vocabulary_file = next(
            path
            for name in ("shared_vocabulary.json", "source_vocabulary.json")
            if (path := folder / name).is_file()
        )

    @cached_property
    def knows_separator(self) -> bool:
        """Whether sentences joined with <sep> are one input, as in INTERPOLATE."""
        return SEPARATOR in json.loads(self._vocabulary_file.read_text(encoding="utf-8"))

    def encode(self, text: str) -> list[str]:
        """The subwords of a line as data_prep makes them."""
        text, _ = clean.single_line(text)
        sentences = split_joined(text) if self.knows_separator else [text]
        tokenized = [tokenize(sentence, self.source_lang).encode() for sentence in sentences]
        encoded = self._encoder.encode(tokenized).decode().split("\n")[:-1]
        return JOIN.join(encoded).split() if any(encoded) else []

    def decode(self, pieces: list[list[str]]) -> str:
        """Text from the translated pieces of a line."""
        texts = (JOIN.join(detokenize_joined(" ".join(p), self.target_lang)) for p in pieces)
        return " ".join(texts).strip()

    def submit(self, batch: list[list[str]], search: Search) -> list:
        """Start to translate a batch; the results come when they are asked for."""
        longest = max(map(len, batch)) + 1  # fairseq counts </s>
        length = min(int(search.max_len_a * longest + search.max_len_b), self.max_target)
        return self._translator.translate_batch(
            batch,
            beam_size=search.beam,
            length_penalty=search.lenpen,
            max_decoding_length=max(length, 1),
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


def batches(lengths: list[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences of like length, as many as fit into `max_tokens` with padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
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
        for batch in batches([len(piece) for piece in pieces], tokens):
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
            translated = [without_end(next(results).result().hypotheses[0]) for _ in pieces]
            yield self._model.decode(translated)


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
    waiting: deque[Chunk] = deque()
    # While one chunk is translated the next is tokenized. Who gives single lines waits for each.
    ahead = 1 if chunk_lines > 1 else 0
    for chunk in chunks(enumerate(lines, start=1), chunk_lines):
        waiting.append(Chunk(model, chunk, search, limit, batch_tokens))
        if len(waiting) > ahead:
            yield from waiting.popleft().texts()
    while waiting:
        yield from waiting.popleft().texts()


def remaining_lines(stream: BinaryIO) -> int | None:
    """How many lines a file still has; of a pipe nobody knows."""
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return None
    start = stream.tell()
    lines = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
    stream.seek(start)
    return lines


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shape-fairseq translate",
        description="Translate raw text, a sentence a line, with a model that"
        " `shape-fairseq export --to ctranslate2` made. Empty lines stay empty; lines that are"
        " longer than the model allows are translated in pieces.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--input", type=Path, help="default: standard input")
    parser.add_argument("--output", type=Path, help="default: standard output")
    parser.add_argument("--beam", type=positive, help="default: as exported")
    parser.add_argument("--lenpen", type=float, help="default: as exported")
    parser.add_argument("--max-len-a", type=float, help="default: as exported")
    parser.add_argument("--max-len-b", type=positive, help="default: as exported")
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
    asked = {name: getattr(args, name) for name in Search.__dataclass_fields__}
    given = {name: value for name, value in asked.items() if value is not None}
    search = Search(**{**vars(model.search), **given})
    opened = open_text(args.input) if args.input else nullcontext(sys.stdin.buffer)
    written = atomic_outputs(args.output) if args.output else nullcontext([sys.stdout.buffer])
    with opened as source, written as (output,):
        chunk_lines = args.chunk_lines or (1 if source.isatty() else CHUNK_LINES)
        lines = (line.removesuffix(b"\n") for line in iter(source.readline, b""))
        texts = translate_lines(
            model, lines, search, args.max_length, chunk_lines, args.batch_tokens
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
