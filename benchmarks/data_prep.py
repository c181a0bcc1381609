"""Lines per second of every stage, side by side with the tool it replaces, on the same cores.

    TQDM_DISABLE=1 python -m benchmarks.data_prep --raw DIR [--lines N] [--rounds N]

DIR holds train.en and train.de (or .gz), for example Multi30k. The stage and the tool take turns;
the best of the rounds counts. Needs subword-nmt and sacremoses on the path.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from data_prep.bpe import apply, learn
from data_prep.detokenize import detokenize_lines
from data_prep.files import read_lines
from data_prep.parallel import available_cores
from data_prep.settings import make_all
from data_prep.statistics import describe_folder
from data_prep.tokenizer import tokenize_corpus

LANGS = ("en", "de")
WMT_PAIRS = 4_500_000
CORES = available_cores()
BIN = Path(sys.executable).parent


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
    minutes = wmt_lines * times[0] / lines / 60
    other = f"{lines / times[1]:>10,.0f} {times[1] / times[0]:>7.1f}x" if times[1] else " " * 19
    print(f"{stage:<22}{lines / times[0]:>10,.0f}  {tool:<34}{other}{minutes:>9.1f}", flush=True)
    return minutes


def repeat_lines(source: Path, target: Path, count: int) -> None:
    """A text of `count` lines made of the lines of a smaller one."""
    lines = list(read_lines(source))
    target.write_bytes(b"".join(line + b"\n" for line in islice(cycle(lines), count)))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data_prep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--raw", required=True, type=Path)
    parser.add_argument("--lines", type=int, default=29_000)
    parser.add_argument("--merges", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
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
    report(f"learn {merges} merges", "subword-nmt learn-bpe", 2 * lines, times, 0)
    learn(files, merges, codes)
    pairs = [line.rsplit(b" ", 1)[0] for line in read_lines(codes)]
    (scratch / "nmt_codes").write_bytes(b"\n".join([b"#version: 0.2", *pairs, b""]))

    tool = (
        f"{BIN}/subword-nmt apply-bpe --num-workers {CORES} -c {scratch}/nmt_codes"
        f" -i {files[1]} -o {out}"
    )
    times = race(lambda: apply(codes, files[1], out), shell(tool), rounds, scratch)
    total += report("apply BPE", f"subword-nmt apply-bpe -j {CORES}", lines, times, 2 * WMT_PAIRS)

    encoded = scratch / "encoded"
    for path in files:
        apply(codes, path, encoded / path.name)

    times = race(lambda: make_all(encoded, out, LANGS, 50, 10), None, rounds, scratch)
    total += report("three settings", "-", lines, times, WMT_PAIRS)
    times = race(lambda: describe_folder(encoded, LANGS), None, rounds, scratch)
    total += report("statistics", "-", 2 * lines, times, 3 * 2 * WMT_PAIRS)

    def detokenize() -> None:
        out.write_bytes(b"".join(detokenize_lines(read_lines(files[1]), "de", split=False)))

    tool = f"{BIN}/sacremoses -q -l de -j {CORES} detokenize <{files[1]} >{out}"
    times = race(detokenize, shell(tool), rounds, scratch)
    report("detokenize", f"sacremoses -j {CORES}", lines, times, 0)

    command = (
        f"{BIN}/fairseq-preprocess --source-lang en --target-lang de --joined-dictionary"
        f" --trainpref {encoded}/train --destdir {out} --workers {CORES}"
    )
    # Its imports take seconds whatever the size of the text: they do not count as work.
    idle = seconds(shell(f"{BIN}/fairseq-preprocess --help"), scratch)
    times = (race(shell(command), None, 1, scratch)[0] - idle, 0.0)
    total += report("fairseq-preprocess", "-", 2 * lines, times, 3 * 2 * WMT_PAIRS)
    print(f"WMT'16 without downloading and learning BPE: {total:.0f} minutes")


if __name__ == "__main__":
    main()
