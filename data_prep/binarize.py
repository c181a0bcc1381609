"""Data-bins for fairseq: one joint dictionary, the same in every setting, and named subsets."""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shape_fairseq.command_line import Parser
from shape_fairseq.data_folder import subset_names
from shape_fairseq.errors import UserError, run
from shape_fairseq.files import PARTIAL, atomic_directory, atomic_outputs, count_lines
from shape_fairseq.parallel import available_cores
from shape_fairseq.text.separator import SEPARATOR

log = logging.getLogger(__name__)

# fairseq starts on its own share of a text when the other processes are done with theirs, so shares
# for as many processes as cores would take twice the time; many small ones keep all cores busy.
SHARES_PER_CORE = 4


def encode_line(
    dictionary, line: str, line_tokenizer: Callable, consumer: Callable, append_eos: bool, **_
):
    """A line as fairseq's Dictionary.encode_line gives it, in a fraction of the time."""
    import numpy
    import torch

    # fairseq writes each symbol into the tensor on its own, which is most of its work.
    words = line_tokenizer(line)
    ids = [dictionary.indices.get(word, dictionary.unk_index) for word in words]
    if dictionary.unk_index in ids:
        for word, symbol in zip(words, ids, strict=True):
            consumer(word, symbol)
    if append_eos:
        ids.append(dictionary.eos_index)
    return torch.from_numpy(numpy.array(ids, dtype=numpy.int32))


@contextmanager
def quick_encoding() -> Iterator[None]:
    """Let fairseq encode lines with the function above, in the processes that it forks too."""
    from fairseq.data import Dictionary

    original = Dictionary.encode_line
    Dictionary.encode_line = encode_line
    try:
        yield
    finally:
        Dictionary.encode_line = original


def preprocess(*arguments: object) -> None:
    """Run fairseq-preprocess with these arguments, in this process to import fairseq only once."""
    from fairseq import options
    from fairseq_cli.preprocess import logger as fairseq_log
    from fairseq_cli.preprocess import main as fairseq_preprocess

    arguments = [str(argument) for argument in arguments]
    log.info("fairseq-preprocess %s", " ".join(arguments))
    handlers = list(fairseq_log.handlers)
    with quick_encoding():
        fairseq_preprocess(options.get_preprocessing_parser().parse_args(arguments))
    # fairseq adds the log file of every run to all the runs that follow it.
    fairseq_log.handlers = handlers


def build_dictionary(text: Path, dictionary: Path, langs: tuple[str, str], workers: int) -> None:
    """Count the joint symbols of the interpolated training text: all of vanilla's, and <sep>."""
    folder = Path(f"{dictionary}.folder{PARTIAL}")
    shutil.rmtree(folder, ignore_errors=True)
    with atomic_outputs(dictionary) as (file,):
        preprocess(
            *_languages(langs),
            "--joined-dictionary",
            "--dict-only",
            "--trainpref",
            text / "train",
            "--destdir",
            folder,
            "--workers",
            workers,
        )
        symbols = (folder / f"dict.{langs[0]}.txt").read_bytes()
        if f"\n{SEPARATOR} ".encode() not in b"\n" + symbols:
            raise UserError(f"{text}/train has no {SEPARATOR}: it is not an interpolated text")
        file.write(symbols)
    shutil.rmtree(folder)


def binarize(
    text: Path, dictionary: Path, output: Path, langs: tuple[str, str], workers: int
) -> None:
    """Turn a folder of subsets into a data-bin whose subsets have the names of the text files."""
    names = subset_names(text, langs)
    others = [name for name in names if name != "train"]
    with atomic_directory(output) as folder:
        train = ("--trainpref", text / "train") if "train" in names else ()
        tests = ("--testpref", ",".join(str(text / name) for name in others)) if others else ()
        preprocess(
            *_languages(langs),
            *train,
            *tests,
            "--srcdict",
            dictionary,
            "--joined-dictionary",
            "--destdir",
            folder,
            "--workers",
            workers * SHARES_PER_CORE if workers > 1 else 1,
        )
        _name_subsets(folder, others)
        for name in names:
            check_subset(folder, text, name, langs)


def _languages(langs: tuple[str, str]) -> tuple[str, ...]:
    return ("--source-lang", langs[0], "--target-lang", langs[1])


def _name_subsets(folder: Path, names: list[str]) -> None:
    """fairseq-preprocess calls its outputs test, test1, test2 ...; give them their names."""
    # In two steps, because a subset may itself be called test.
    for number, name in enumerate(names):
        made = f"test{number or ''}."
        for path in folder.glob(f"{made}*"):
            path.rename(folder / f"named-{name}.{path.name.removeprefix(made)}")
    for path in folder.glob("named-*"):
        path.rename(folder / path.name.removeprefix("named-"))


def check_subset(folder: Path, text: Path, name: str, langs: tuple[str, str]) -> None:
    """Both sides of a subset must hold as many sequences as its text has lines."""
    from fairseq.data import indexed_dataset

    for lang in langs:
        path = folder / f"{name}.{langs[0]}-{langs[1]}.{lang}"
        sequences = len(indexed_dataset.make_dataset(str(path), impl="mmap"))
        lines = count_lines(text / f"{name}.{lang}")
        if sequences != lines:
            raise UserError(
                f"{path} has {sequences:,} sequences for {lines:,} lines: is the disk full?"
            )


def main() -> None:
    parser = Parser(
        prog="python -m data_prep.binarize",
        description=__doc__,
        example="--text runs/demo/data/text --dictionary runs/demo/data/dict.txt --output bins",
    )
    parser.add_argument(
        "--text",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder with a folder of BPE-encoded text for each setting",
    )
    parser.add_argument(
        "--dictionary",
        required=True,
        type=Path,
        help="made from DIR/interpolate/train where it does not exist",
    )
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="gets a data-bin for each setting; complete ones are kept",
    )
    parser.add_argument("--langs", nargs=2, default=("en", "de"), metavar=("SRC", "TGT"))
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: all cores")
    args = parser.parse_args()
    langs = tuple(args.langs)
    if not args.dictionary.exists():
        build_dictionary(args.text / "interpolate", args.dictionary, langs, args.workers)
    for text in sorted(path for path in args.text.iterdir() if path.is_dir()):
        if (args.output / text.name).exists():
            log.info("%s: complete, skipped", text.name)
        else:
            binarize(text, args.dictionary, args.output / text.name, langs, args.workers)


if __name__ == "__main__":
    run(main)
