"""The command line of shape-fairseq."""

import importlib
import sys
from pathlib import Path

from .command_line import Parser
from .errors import run

# Modules are imported when they are asked for: some need seconds to import torch.
COMMANDS = {
    "user-dir": (None, "print this package's path, for fairseq-train --user-dir $(...)"),
    "experiment": (".experiment.command", "run a whole experiment, described in a TOML file"),
    "average": (".evaluation.averaging", "average the last checkpoints of a training"),
    "score": (".evaluation.scoring", "score translations with sacreBLEU, write a result file"),
    "significance": (".evaluation.significance", "paired bootstrap of results against APE"),
    "max-shift": (".evaluation.max_shift", "choose SHAPE's maximum shift from results"),
    "tables": (".evaluation.tables", "print the paper's tables from results"),
    "similarity": (".analysis.similarity", "figure 2: encoder states under shifted positions"),
    "swap": (".analysis.swap", "table 1: BLEU when the first sentence is moved to the end"),
    "length-bleu": (".analysis.length_bleu", "figure 3: BLEU by source length"),
    "token-scores": (".analysis.token_scores", "figure 4: which model scores gold tokens higher"),
    "curves": (".analysis.curves", "appendix E: validation perplexity while training"),
    "lengths": (".analysis.lengths", "appendix A: the distribution of sequence lengths"),
    "speed": (".analysis.speed", "table 6: training and generation speed side by side"),
    "compare": (".analysis.compare", "all models side by side, and which are told apart"),
    "report": (".analysis.report", "one HTML page with the paper's claims and all of the above"),
    "export": (".production.export", "write a stock fairseq checkpoint or a CTranslate2 model"),
    "translate": (".production.translate", "translate raw text with an exported model"),
}


def main() -> None:
    """Run one subcommand of `shape-fairseq`."""
    parser = Parser(prog="shape-fairseq", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, help_text) in COMMANDS.items():
        commands.add_parser(name, help=help_text)
    command = parser.parse_args(sys.argv[1:2]).command
    module, _ = COMMANDS[command]
    if module is None:
        parser.parse_args()
        print(Path(__file__).resolve().parent)
        return
    run(lambda: importlib.import_module(module, "shape_fairseq").main(sys.argv[2:]))


if __name__ == "__main__":
    main()
