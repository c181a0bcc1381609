"""Sentences per second of fairseq-generate, fairseq-interactive and `shape-fairseq translate`.

    python -m benchmarks.translation --data DATA --setting extrapolate --subset test \
        ape=CHECKPOINT shape=CHECKPOINT rpe=CHECKPOINT [--sentences N] [--rounds N] [--json FILE]

DATA is a folder that data_prep made. All of them translate the same sentences with the same beam on
the CPU and take turns; the best of the rounds counts. The time to start (imports, loading the
model), measured on a single sentence, is subtracted and shown in columns of its own. On a machine
with other work look at the time on the cores, which counts all threads, and not at the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from sacrebleu.metrics import BLEU

from shape_fairseq.command_line import Parser
from shape_fairseq.files import read_lines
from shape_fairseq.parallel import available_cores
from shape_fairseq.search import Search
from shape_fairseq.text.detokenize import detokenize_joined
from shape_fairseq.text.separator import JOIN

TOP = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SEARCH = Search().options()
QUANTIZATIONS = ("float32", "int8")

Tool = Callable[[Path, Path], list[str]]  # encoded and raw sentences to translations


def command(*arguments: object, stdin: Path | None = None) -> str:
    """Run a command as people do, on all cores; its standard output."""
    threads = {"OMP_NUM_THREADS": str(available_cores())}
    result = subprocess.run(
        list(map(str, arguments)),
        stdin=open(stdin, "rb") if stdin else subprocess.DEVNULL,  # noqa: SIM115
        capture_output=True,
        env={**os.environ, **threads, "PYTHONPATH": str(TOP), "PYTHONUTF8": "1"},
    )
    if result.returncode:
        sys.exit(f"error: {arguments[0]} failed: {result.stderr.decode()[-500:]}")
    return result.stdout.decode()


def hypotheses(output: str, lang: str) -> list[str]:
    """The translations that fairseq prints, in the order of the sentences, as text."""
    rows = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    ordered = sorted(rows, key=lambda row: int(row[0][2:]))
    return [JOIN.join(detokenize_joined(row[2], lang)) for row in ordered]


class Bench:
    """One model: what it was exported to, and how each tool translates with it."""

    def __init__(self, checkpoint: Path, args: argparse.Namespace, scratch: Path):
        self.data = args.data / args.setting
        self.dictionary = args.data / "dict.txt"
        self.langs = (args.source_lang, args.target_lang)
        self.checkpoint = checkpoint
        self.scratch = scratch
        self.fairseq = (
            *("--user-dir", TOP / "shape_fairseq", "--path", checkpoint, "--cpu"),
            *("--task", "translation", "-s", self.langs[0], "-t", self.langs[1], *SEARCH),
        )
        self.tools: dict[str, Tool] = {
            "fairseq-generate": self.generate,
            "fairseq-interactive": self.interactive,
        }
        for quantization in QUANTIZATIONS:
            folder = scratch / quantization
            command(
                *(sys.executable, "-m", "shape_fairseq", "export", checkpoint),
                *("--to", "ctranslate2", folder, "--data", args.data, *SEARCH),
                *("--quantization", quantization),
                *("--source-lang", self.langs[0], "--target-lang", self.langs[1]),
            )
            self.tools[f"translate, {quantization}"] = self.translate(folder)

    def generate(self, encoded: Path, raw: Path) -> list[str]:
        """fairseq-generate on a data-bin; making the data-bin is not counted."""
        binarized = encoded.with_suffix(".bin")
        options = ("--max-tokens", 3500, "--required-batch-size-multiple", 1)
        output = command(BIN / "fairseq-generate", binarized, *self.fairseq, *options)
        return hypotheses(output, self.langs[1])

    def interactive(self, encoded: Path, raw: Path) -> list[str]:
        """fairseq-interactive on BPE-encoded text, in batches, as for a file."""
        options = ("--buffer-size", 2000, "--max-tokens", 3500)
        output = command(
            BIN / "fairseq-interactive", self.data, *self.fairseq, *options, stdin=encoded
        )
        return hypotheses(output, self.langs[1])

    def translate(self, folder: Path) -> Tool:
        """`shape-fairseq translate`, which also tokenizes, encodes and detokenizes."""

        def run(encoded: Path, raw: Path) -> list[str]:
            output = command(sys.executable, "-m", "shape_fairseq", "translate", folder, stdin=raw)
            return output.splitlines()

        return run


def binarize(text: Path, dictionary: Path, langs: tuple[str, str]) -> None:
    """A data-bin of a few sentences; their own text stands where the target would be."""
    for lang in langs:
        (text.parent / f"{text.name}.{lang}").write_bytes(text.read_bytes())
    command(
        *(BIN / "fairseq-preprocess", "-s", langs[0], "-t", langs[1], "--testpref", text),
        *("--srcdict", dictionary, "--joined-dictionary", "--destdir", text.with_suffix(".bin")),
    )


def head(source: Path, target: Path, lines: int) -> list[str]:
    """Write the first lines of a text, again from its beginning if it is short, and return them."""
    first = list(islice(cycle(read_lines(source)), lines))
    target.write_bytes(b"".join(line + b"\n" for line in first))
    return [line.decode("utf-8") for line in first]


def spent() -> tuple[float, float]:
    """The time on the clock, and the time that all commands so far had on a core."""
    times = os.times()
    return times.elapsed, times.children_user + times.children_system


def measure(
    tools: dict[str, Tool], inputs: tuple[Path, Path], single: tuple[Path, Path], rounds: int
):
    """Best seconds (clock, cores) of each tool and of its start, and its translations."""
    best: dict[tuple[str, str], list[float]] = {}
    outputs: dict[str, list[str]] = {}
    for _ in range(rounds):
        for name, tool in tools.items():
            for paths, what in ((single, "start"), (inputs, "all")):
                before = spent()
                outputs[name] = tool(*paths)
                now = [after - start for after, start in zip(spent(), before, strict=True)]
                best[name, what] = list(map(min, now, best.get((name, what), now)))
    return {name: (best[name, "all"], best[name, "start"], outputs[name]) for name in tools}


def report(model: str, measured: dict, reference: list[str]) -> list[dict]:
    """A row for each tool: speed without the start, BLEU, lines as in fairseq-generate."""
    baseline = measured["fairseq-generate"][2]
    rows = []
    for tool, (total, start, texts) in measured.items():
        seconds, core_seconds = (both - first for both, first in zip(total, start, strict=True))
        # On a busy machine the start can vary by more than the translation takes.
        speed = round(len(texts) / seconds, 1) if seconds > 0.1 * start[0] else "too few sentences"
        same = sum(map(str.__eq__, texts, baseline)) / len(texts)
        rows.append(
            {
                "model": model,
                "tool": tool,
                "sentences_per_second": speed,
                "core_milliseconds_per_sentence": round(1000 * core_seconds / len(texts), 1),
                "start_seconds": round(start[0], 1),
                "start_core_seconds": round(start[1], 1),
                "bleu": round(BLEU().corpus_score(texts, [reference]).score, 2),
                "identical": round(100 * same, 1),
            }
        )
        print("| " + " | ".join(map(str, rows[-1].values())) + " |", flush=True)
    return rows


def main() -> None:
    parser = Parser(
        prog="python -m benchmarks.translation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        example="--data runs/demo/data --setting extrapolate --sentences 50 \\\n"
        "    ape=runs/demo/checkpoints/extrapolate-ape-seed1/checkpoint_last.pt",
    )
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--setting", default="vanilla")
    parser.add_argument("--subset", default="test")
    parser.add_argument("--source-lang", default="en")
    parser.add_argument("--target-lang", default="de")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    langs = (args.source_lang, args.target_lang)
    text, raw = (args.data / part / args.setting for part in ("text", "reference"))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        inputs, single = ((scratch / f"{n}-encoded", scratch / f"{n}-raw") for n in ("all", "one"))
        for paths, count in ((inputs, args.sentences), (single, 1)):
            head(text / f"{args.subset}.{langs[0]}", paths[0], count)
            head(raw / f"{args.subset}.{langs[0]}", paths[1], count)
            binarize(paths[0], args.data / "dict.txt", langs)
        reference = head(raw / f"{args.subset}.{langs[1]}", scratch / "reference", args.sentences)
        print(f"{len(reference)} sentences, {available_cores()} cores, best of {args.rounds}")
        print(
            "| model | tool | sentences/s | core ms a sentence | start (s) | start (core s) |",
            end="",
        )
        print(" BLEU | identical lines (%) |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        rows = []
        for model in args.models:
            name, _, checkpoint = model.partition("=")
            (scratch / name).mkdir()
            bench = Bench(Path(checkpoint).resolve(), args, scratch / name)
            rows += report(name, measure(bench.tools, inputs, single, args.rounds), reference)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
