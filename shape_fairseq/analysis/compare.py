"""All models of an experiment side by side: BLEU, speed, memory, and which are told apart."""

from pathlib import Path

from ..command_line import Parser
from ..data_folder import SETTINGS
from ..errors import UserError
from ..evaluation import bootstrap
from ..evaluation.bootstrap import CHANCE, Difference
from ..evaluation.cells import mean_cell, speed_cell
from ..evaluation.results import label_title
from ..evaluation.table import FORMATS, MISSING, Table
from .report import read_folder

Results = dict[str, dict]  # of one analysis, by setting


def parts_of(result: dict) -> dict[str, str]:
    """The parts of a test set that BLEU by length tells apart, with their titles."""
    setting, trained = result["setting"].upper(), result["trained_length"]
    titles = {"all": setting}
    if trained is not None:
        titles = {
            "trained": f"{setting} up to {trained} subwords",
            "untrained": f"{setting} beyond {trained} subwords",
        }
    return {part: title for part, title in titles.items() if result["sequences"][part]}


def side_by_side(scores: Results, speeds: Results) -> Table:
    """A row for each model."""
    models = dict.fromkeys(model for result in scores.values() for model in result["models"])
    columns: dict[str, list[str]] = {"Model": [label_title(model) for model in models]}
    notes = []
    for result in scores.values():
        for part, title in parts_of(result).items():
            columns[title] = [
                mean_cell(result["models"][model]["seeds"][part])
                if model in result["models"]
                else MISSING
                for model in models
            ]
            counts = sorted({len(member["seeds"][part]) for member in result["models"].values()})
            seeds = " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")
            notes.append(f"{title}: BLEU of {result['sequences'][part]:,} sequences, {seeds}.")
    for setting, result in speeds.items():
        measured = [result["models"].get(model) for model in models]
        columns[f"Training, {setting.upper()}"] = [
            speed_cell(one["training"]["speed"]) if one else MISSING for one in measured
        ]
        columns[f"Memory, {setting.upper()}"] = [
            f"{one['step_memory'] / 1e6:.1f} MB" if one else MISSING for one in measured
        ]
        columns["Parameters"] = [f"{one['parameters']:,}" if one else MISSING for one in measured]
    if speeds:
        notes.append(
            "Training: speed of an update relative to APE, in turns on the same batches. Memory: of"
            " an update, beyond the weights. ±: standard deviation of the seeds."
        )
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table("Models side by side", list(columns), rows, notes)


def told_apart(result: dict, part: str, title: str) -> Table:
    """Each model minus every one before it; a star where that is more than chance."""
    labels = list(result["models"])
    pairs = {
        (label, other): Difference(**fields)
        for label, model in result["models"].items()
        for other, fields in model["differences"][part].items()
    }
    raised = bootstrap.holm([difference.p_value for difference in pairs.values()])
    certain = {pair for pair, p_value in zip(pairs, raised, strict=True) if p_value < CHANCE}

    def cell(label: str, other: str) -> str:
        if (label, other) not in pairs:
            return ""
        return f"{pairs[label, other].value:+.2f}" + ("*" if (label, other) in certain else "")

    better = {pair if pairs[pair].value > 0 else pair[::-1] for pair in certain}
    rows = [
        [label_title(label), *(cell(label, other) for other in labels[:-1])] for label in labels
    ]
    alone = sum(difference.p_value < CHANCE for difference in pairs.values())
    methods = " and ".join(sorted({difference.method for difference in pairs.values()}))
    notes = [
        "BLEU of the row minus that of the column. * more than chance: p < 0.05 after Holm's"
        f" correction for {len(pairs)} pairs ({methods}).",
        f"So {len(certain)} of {len(pairs)} pairs are told apart; without the correction {alone}"
        f" would be, where chance alone makes about {CHANCE * len(pairs):.1f}.",
    ]
    for label in labels:
        if worse := [label_title(other) for other in labels if (label, other) in better]:
            notes.append(f"{label_title(label)} is better than {', '.join(worse)}.")
    header = ["", *map(label_title, labels[:-1])]
    return Table(f"Which are told apart: {title}", header, rows[1:], notes)


def main(arguments: list[str]) -> None:
    """Print all models of a folder of runs side by side, and which are told apart."""
    parser = Parser(
        prog="shape-fairseq compare",
        description=main.__doc__,
        example="runs/positions --format markdown",
    )
    parser.add_argument(
        "runs", type=Path, metavar="RUNS", help="folder with analysis/SETTING/length-bleu.json"
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    args = parser.parse_args(arguments)
    analyses = read_folder(args.runs).runs.analyses
    scores, speeds = (
        {setting: analyses[setting, name][0] for setting in SETTINGS if (setting, name) in analyses}
        for name in ("length-bleu", "speed")
    )
    if not scores:
        raise UserError(f"{args.runs} has no analysis/SETTING/length-bleu.json to compare")
    tables = [side_by_side(scores, speeds)]
    for result in scores.values():
        tables += [told_apart(result, part, title) for part, title in parts_of(result).items()]
    print("\n\n".join(FORMATS[args.format](table) for table in tables if table.rows))
