"""The command line of shape-fairseq."""

import argparse
import importlib
import sys
from pathlib import Path

from .command_line import Parser
from .errors import run

# In the order in which one needs them. Modules are imported when they are asked for: some need
# seconds to import torch.
GROUPS: dict[str, dict[str, tuple[str | None, str]]] = {
    "train with fairseq": {
        "user-dir": (None, "print this package's path, for fairseq-train --user-dir $(...)"),
    },
    "run a whole experiment": {
        "experiment": (".experiment.command", "from raw text to the report, by a TOML file"),
    },
    "score trainings": {
        "average": (".evaluation.averaging", "average the last checkpoints of a training"),
        "score": (".evaluation.scoring", "score translations with sacreBLEU, write a result file"),
        "tables": (".evaluation.tables", "print the paper's tables from results"),
        "significance": (".evaluation.significance", "paired bootstrap of results against APE"),
        "max-shift": (".evaluation.max_shift", "choose SHAPE's maximum shift from results"),
    },
    "look into models": {
        "lengths": (".analysis.lengths", "appendix A: the distribution of sequence lengths"),
        "curves": (".analysis.curves", "appendix E: validation perplexity while training"),
        "similarity": (".analysis.similarity", "figure 2: encoder states under shifted positions"),
        "swap": (".analysis.swap", "table 1: BLEU when the first sentence is moved to the end"),
        "length-bleu": (".analysis.length_bleu", "figure 3: BLEU by source length"),
        "token-scores": (".analysis.token_scores", "figure 4: who scores gold tokens higher"),
        "speed": (".analysis.speed", "table 6: training and generation speed side by side"),
        "compare": (".analysis.compare", "all models side by side, and which are told apart"),
        "report": (".analysis.report", "one HTML page with the claims and all of the above"),
    },
    "translate with a model": {
        "export": (".production.export", "write a stock fairseq checkpoint or a CTranslate2 model"),
        "translate": (".production.translate", "translate raw text with an exported model"),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def description() -> str:
    """All commands in their groups."""
    lines = ["Position representations for Transformer translation with fairseq."]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<14}{help_text}" for name, (_, help_text) in commands.items()]
    return "\n".join([*lines, "", "shape-fairseq COMMAND --help shows its options and an example."])


def user_dir(arguments: list[str]) -> None:
    """Print the path of this package, which fairseq's commands need as their --user-dir."""
    parser = Parser(
        prog="shape-fairseq user-dir",
        description=f"{user_dir.__doc__} Write --user-dir $(shape-fairseq user-dir).",
        example="",
    )
    parser.parse_args(arguments)
    print(Path(__file__).resolve().parent)


def main() -> None:
    """Run one command of `shape-fairseq`."""
    parser = Parser(
        prog="shape-fairseq",
        usage="shape-fairseq COMMAND [OPTION ...]",
        description=description(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        example="experiment recipes/demo.toml",
    )
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    if not sys.argv[1:]:
        parser.print_help()
        sys.exit(2)
    command = parser.parse_args(sys.argv[1:2]).command
    module, _ = COMMANDS[command]
    if module is None:
        user_dir(sys.argv[2:])
    else:
        run(lambda: importlib.import_module(module, "shape_fairseq").main(sys.argv[2:]))


if __name__ == "__main__":
    main()
