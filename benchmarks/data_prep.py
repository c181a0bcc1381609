"""Speed and memory of every stage of data_prep, side by side with the tool that it replaces.

    TQDM_DISABLE=1 python -m benchmarks.data_prep --raw DIR [--lines N] [--rounds N]
    TQDM_DISABLE=1 python -m benchmarks.data_prep --raw DIR --memory [--lines N]

DIR holds train.en and train.de (or .gz), for example Multi30k. Speed: the stage and the tool take
turns on the same cores, and the best of the rounds counts. Memory: the largest process of each
stage on N pairs and on 4N. Needs subword-nmt and sacremoses on the path.
"""

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, cycle, islice
from pathlib import Path

from data_prep.binarize import binarize, build_dictionary
from data_prep.settings import make_all
from shape_fairseq.command_line import Parser
from shape_fairseq.files import read_lines
from shape_fairseq.parallel import available_cores
from shape_fairseq.text.bpe import apply, count_words, learn
from shape_fairseq.text.bpe_engines import PythonEngine, best_engine
from shape_fairseq.text.bpe_learning import learn_merges
from shape_fairseq.text.detokenize import detokenize_lines
from shape_fairseq.text.statistics import describe_folder
from shape_fairseq.text.tokenizer import tokenize_corpus

LANGS = ("en", "de")
WMT_PAIRS = 4_500_000
# 226 million words in 9 million lines (Luong et al., 2015); Multi30k's lines have 13 words.
WMT_LONGER = 2
WMT_MERGES = 32_000
WMT_WORDS = 2_000_000
CORES = available_cores()
BIN = Path(sys.executable).parent
# A small process that starts the stage: the peak of a child counts what it was forked from too.
PEAK = (
    "import resource, subprocess, sys;"
    "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def shell(command: str) -> Callable[[], None]:
    """A tool as people call it; its output goes to a file, as that of the stage does."""
    return lambda: subprocess.run(["bash", "-c", command], check=True, capture_output=True)


def seconds(work: Callable[[], object], scratch: Path) -> float:
    """How long one run takes, starting without its former output."""
    for output in scratch.glob("out*"):
        shutil.rmtree(output) if output.is_dir() else output.unlink()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def race(ours: Callable, tool: Callable | None, rounds: int, scratch: Path) -> tuple[float, ...]:
    """The best times of the stage and of the tool, which take turns."""
    runs = [
        [seconds(work, scratch) if work else 0.0 for work in (ours, tool)] for _ in range(rounds)
    ]
    return tuple(map(min, zip(*runs, strict=True)))


def report(stage: str, tool: str, lines: int, times: tuple[float, ...], wmt_lines: int) -> float:
    """Print a row of the table and return the projected minutes for WMT'16."""
    minutes = wmt_lines * WMT_LONGER * times[0] / lines / 60
    other = f"{lines / times[1]:>10,.0f} {times[1] / times[0]:>7.1f}x" if times[1] else " " * 19
    print(f"{stage:<22}{lines / times[0]:>10,.0f}  {tool:<34}{other}{minutes:>9.1f}", flush=True)
    return minutes


def repeat_lines(source: Path, target: Path, count: int) -> None:
    """A text of `count` lines made of the lines of a smaller one."""
    lines = list(read_lines(source))
    target.write_bytes(b"".join(line + b"\n" for line in islice(cycle(lines), count)))


def made_up_vocabulary(real: Counter, size: int, seed: int = 1) -> dict[str, int]:
    """`size` words and counts like those of a big corpus: compounds, names, numbers; Zipf's law.

    Real words come first, by frequency. A tenth of a per cent of the words makes most of the text,
    and most words occur once.
    """
    choices = random.Random(seed)
    words = dict.fromkeys(word for word, _ in real.most_common())
    stems = [word for word in words if word.isalpha() and len(word) > 3]
    weights = list(accumulate(1 / (rank + 50) for rank in range(len(stems))))
    while len(words) < size:
        first, second = choices.choices(stems, cum_weights=weights, k=2)
        words.setdefault(made_up_word(first, second, choices))
    return {word: zipf_count(rank) for rank, word in enumerate(islice(words, size))}


def made_up_word(first: str, second: str, choices: random.Random) -> str:
    """A compound, an inflected word, a name or a number."""
    start = choices.choice(("", "", "", "", "un", "ver", "be", "über", "Haupt", "re", "anti-"))
    link = choices.choice(("", "", "", "s", "-", "es", "n"))
    end = choices.choice(("", "", "", "e", "en", "er", "s", "ung", "lich", "ed", "ing", "ly"))
    kind = choices.random()
    if kind < 0.55:
        return f"{start}{first}{link}{second.lower()}{end}"
    if kind < 0.75:
        return f"{start}{first}{end}"
    if kind < 0.9:
        syllables = ("ka", "ber", "lin", "ma", "to", "sch", "er", "vic", "ol", "son", "ge", "dou")
        return "".join(choices.choices(syllables, k=choices.randint(2, 4))).capitalize()
    return f"{choices.randint(1, 10 ** choices.randint(2, 7))}{link}"


def zipf_count(rank: int) -> int:
    """How often the word of a rank occurs among some 150 million."""
    return int(15e6 / (rank + 3)) if rank < 10_000 else max(1, int(1500 * (rank / 1e4) ** -1.7))


def peak_memory(*command: object) -> float:
    """The megabytes that the largest process of a command has held at once."""
    run = [sys.executable, "-S", "-c", PEAK, *map(str, command)]
    return int(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout) / 1024


def stages(folder: Path, workers: int, merges: int = 6000) -> Iterator[tuple[str, list]]:
    """The commands from raw.en and raw.de of a folder to data-bins, to be run in this order."""
    tokenized = [folder / "tok" / f"train.{lang}" for lang in LANGS]
    modules = {
        "tokenize": (
            "shape_fairseq.text.tokenizer",
            "--input",
            folder / "raw",
            "--output",
            folder / "tok" / "train",
            "--max-tokens",
            80,
            "--workers",
            workers,
        ),
        "clean": (
            "shape_fairseq.text.clean",
            "--input",
            folder / "raw",
            "--output",
            folder / "clean",
        ),
        "learn BPE": (
            "shape_fairseq.text.bpe",
            "--workers",
            workers,
            "learn",
            "--input",
            *tokenized,
            "--merges",
            merges,
            "--codes",
            folder / "codes",
        ),
        "apply BPE": (
            "shape_fairseq.text.bpe",
            "--workers",
            workers,
            "apply",
            "--codes",
            folder / "codes",
            "--input",
            *tokenized,
            "--output",
            folder / "encoded",
        ),
        "three settings": (
            "data_prep.settings",
            "all",
            "--input",
            folder / "encoded",
            "--output",
            folder / "text",
        ),
        "statistics": (
            "shape_fairseq.text.statistics",
            "--input",
            folder / "text",
            "--json",
            folder / "statistics",
            "--workers",
            workers,
        ),
        "detokenize": (
            "shape_fairseq.text.detokenize",
            "--input",
            folder / "encoded" / "train.de",
            "--output",
            folder / "detokenized",
            "--workers",
            workers,
        ),
        "binarize": (
            "data_prep.binarize",
            "--text",
            folder / "text",
            "--dictionary",
            folder / "dict.txt",
            "--output",
            folder / "bin",
            "--workers",
            workers,
        ),
    }
    for stage, (module, *options) in modules.items():
        yield stage, [sys.executable, "-m", module, *options]


def measure_memory(scratch: Path, raw: Path, lines: int) -> None:
    """Print the peak of each stage for a text and for one of four times its lines."""
    sizes = (lines, 4 * lines)
    for pairs in sizes:
        (scratch / str(pairs)).mkdir()
        for lang in LANGS:
            repeat_lines(raw / f"train.{lang}", scratch / str(pairs) / f"raw.{lang}", pairs)
    print(f"{CORES} cores, MB of the largest process")
    print(f"{'stage':<22}" + "".join(f"{pairs:>12,} pairs" for pairs in sizes))
    for runs in zip(*(stages(scratch / str(pairs), CORES) for pairs in sizes), strict=True):
        peaks = [peak_memory(*command) for _, command in runs]
        print(f"{runs[0][0]:<22}" + "".join(f"{peak:>18,.0f}" for peak in peaks), flush=True)


def main() -> None:
    parser = Parser(
        prog="python -m benchmarks.data_prep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        example="--raw runs/demo/data/raw --lines 2000 --rounds 1",
    )
    parser.add_argument("--raw", required=True, type=Path)
    parser.add_argument("--lines", type=int, default=29_000)
    parser.add_argument("--merges", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.memory:
            measure_memory(Path(folder), args.raw, args.lines)
        else:
            measure(Path(folder), args.raw, args.lines, args.merges, args.rounds)


def measure(scratch: Path, raw: Path, lines: int, merges: int, rounds: int) -> None:
    for lang in LANGS:
        repeat_lines(raw / f"train.{lang}", scratch / f"raw.{lang}", lines)
    out, tok, codes = scratch / "out", scratch / "tok" / "train", scratch / "codes"
    print(f"{CORES} cores, {lines:,} pairs")
    print(f"{'stage':<22}{'lines/s':>10}  {'tool':<34}{'lines/s':>10} {'faster':>8}{'WMT min':>9}")
    total = 0.0

    tool = " && ".join(
        f"{BIN}/sacremoses -q -l {lang} -j {CORES} tokenize <{scratch}/raw.{lang} >{out}.{lang}"
        for lang in LANGS
    )
    times = race(
        lambda: tokenize_corpus([scratch / "raw"], out, LANGS, 80), shell(tool), rounds, scratch
    )
    total += report("tokenize and clean", f"sacremoses -j {CORES}", 2 * lines, times, 2 * WMT_PAIRS)
    tokenize_corpus([scratch / "raw"], tok, LANGS, 80)
    files = [Path(f"{tok}.{lang}") for lang in LANGS]

    joined = f"cat {files[0]} {files[1]} >{out}.all && {BIN}/subword-nmt learn-bpe"
    tool = f"{joined} -s {merges} --num-workers {CORES} -i {out}.all -o {out}"
    times = race(lambda: learn(files, merges, out), shell(tool), rounds, scratch)
    # The time depends on the vocabulary and the merges, hardly on the lines; but counting does.
    report(f"learn {merges} merges", "subword-nmt learn-bpe", 2 * lines, times, 0)
    learn(files, merges, codes)
    total += report_wmt_learning(files)
    pairs = [line.rsplit(b" ", 1)[0] for line in read_lines(codes)]
    (scratch / "nmt_codes").write_bytes(b"\n".join([b"#version: 0.2", *pairs, b""]))

    tool = (
        f"{BIN}/subword-nmt apply-bpe --num-workers {CORES} -c {scratch}/nmt_codes"
        f" -i {files[1]} -o {out}"
    )
    for engine in (PythonEngine, best_engine()):  # The last one is what WMT'16 would take.
        work = partial(apply, codes, files[1], out, engine=engine)
        times = race(work, shell(tool), rounds, scratch)
        stage = f"apply BPE, {engine.__name__.removesuffix('Engine')}"
        minutes = report(stage, f"subword-nmt apply-bpe -j {CORES}", lines, times, 2 * WMT_PAIRS)
    total += minutes

    encoded, text, dictionary = (scratch / name for name in ("encoded", "text", "dictionary"))
    for path in files:
        apply(codes, path, encoded / path.name)

    times = race(lambda: make_all(encoded, out, LANGS, 50, 10), None, rounds, scratch)
    total += report("three settings", "-", lines, times, WMT_PAIRS)
    make_all(encoded, text, LANGS, 50, 10)
    times = race(lambda: describe_folder(encoded, LANGS), None, rounds, scratch)
    total += report("statistics", "-", 2 * lines, times, 3 * 2 * WMT_PAIRS)

    def detokenize() -> None:
        out.write_bytes(b"".join(detokenize_lines(read_lines(files[1]), "de", split=False)))

    tool = f"{BIN}/sacremoses -q -l de -j {CORES} detokenize <{files[1]} >{out}"
    times = race(detokenize, shell(tool), rounds, scratch)
    report("detokenize", f"sacremoses -j {CORES}", lines, times, 0)

    def make_dictionary() -> None:
        build_dictionary(text / "interpolate", out, LANGS, CORES)

    times = race(make_dictionary, None, rounds, scratch)
    total += report("joint dictionary", "-", 2 * lines, times, 2 * WMT_PAIRS)
    build_dictionary(text / "interpolate", dictionary, LANGS, CORES)
    command = (
        f"{BIN}/fairseq-preprocess --source-lang en --target-lang de --joined-dictionary"
        f" --srcdict {dictionary} --trainpref {encoded}/train --destdir {out} --workers {CORES}"
    )
    # Its imports take seconds whatever the size of the text: they do not count as work.
    idle = seconds(shell(f"{BIN}/fairseq-preprocess --help"), scratch)
    ours = lambda: binarize(encoded, dictionary, out, LANGS, CORES)  # noqa: E731
    times = race(ours, shell(command), rounds, scratch)
    times = (times[0], times[1] - idle)
    total += report("binarize", "fairseq-preprocess", 2 * lines, times, 3 * 2 * WMT_PAIRS)
    print(f"WMT'16 without downloading: {total:.0f} minutes")


def report_wmt_learning(files: list[Path]) -> float:
    """Learn WMT's number of merges from a made-up vocabulary of its size; return the minutes."""
    real: Counter = Counter()
    for path in files:
        real += count_words(list(read_lines(path)))[0]
    vocabulary = made_up_vocabulary(real, WMT_WORDS)
    started = time.perf_counter()
    for _ in islice(learn_merges(vocabulary), WMT_MERGES):
        pass
    minutes = (time.perf_counter() - started) / 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    what = f"learn {WMT_MERGES:,} merges, {len(vocabulary):,} made-up words, {peak:,} MB"
    print(f"{what:<78}{minutes:>15.1f}", flush=True)
    return minutes


if __name__ == "__main__":
    main()
