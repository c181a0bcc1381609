"""The paper's tables 2, 5, 6 and 7 from result files, with the paper's numbers beside ours."""

from pathlib import Path

from ..command_line import Parser
from ..data_folder import SETTINGS
from . import paper, results
from .cells import PAPERS_MODELS, Cells, by_data, speed_cell
from .results import ALL, AS_IN_PAPER, CHRF, LOWERCASED_TOKENIZED, SPLIT, TER, variant_title
from .table import FORMATS, NOT_REPORTED, RULE, Table


def papers_row(numbers: tuple | None, width: int) -> list[str]:
    """Scores and, last, the speed as the paper prints them; dashes where it has none."""
    if numbers is None:
        return [NOT_REPORTED] * width
    *scores, speed = numbers
    return [*(f"{score:.2f}" for score in scores), speed_cell(speed)]


def blocks() -> list[tuple[str, str, str]]:
    """A block for each setting, INTERPOLATE also split into sentences: setting, kind, title."""
    joined = [(setting, AS_IN_PAPER, setting.upper()) for setting in SETTINGS]
    return [*joined, ("interpolate", SPLIT, "INTERPOLATE (split)")]


def bleu_table(cells: Cells, title: str, columns: dict[str, str], of_paper: dict) -> Table:
    """Tables 2 and 5: all models in every block."""
    rows: list[list[str] | None] = []
    for setting, kind, block in blocks():
        if rows:
            rows.append(RULE)
        for variant in cells.variants(setting):
            scores = [cells.score(setting, variant, subset, kind) for subset in columns]
            seeds, speed = cells.seeds(setting, variant), cells.speed(setting, variant)
            rows.append([block, variant_title(variant), "ours", *scores, speed, seeds])
            if cells.is_papers and kind == AS_IN_PAPER:
                model, max_shift = variant
                key = (setting, model) if max_shift is None else (setting, model, max_shift)
                theirs = papers_row(of_paper.get(key), len(columns) + 1)
                known = key in of_paper
                seeds = str(paper.SEEDS[setting]) if known else NOT_REPORTED
                rows.append([block, variant_title(variant), "paper", *theirs, seeds])
    notes = [
        "INTERPOLATE: joined sentences with <sep> scored, as in the paper; (split): by sentence.",
        *separator_notes(cells),
    ]
    header = ["Dataset", "Model", "Source", *columns.values(), "Speed", "Seeds"]
    return Table(f"{title} ({cells.name})", header, rows, notes)


def separator_notes(cells: Cells) -> list[str]:
    """What went wrong with <sep>, in one line for each model on INTERPOLATE."""
    notes = []
    for variant in cells.variants("interpolate"):
        counts = [
            count
            for result in cells.get("interpolate", variant)
            for count in result.separators.values()
        ]
        if counts:
            missing, extra, expected = (
                sum(count[name] for count in counts) for name in ("missing", "extra", "expected")
            )
            notes.append(
                f"{variant_title(variant)} on INTERPOLATE: {missing} of {expected} <sep> missing,"
                f" {extra} too many."
            )
    return notes


def table_2(cells: Cells) -> Table:
    """BLEU on valid and test."""
    columns = {group: group.capitalize() for group in cells.groups}
    of_paper = paper.TABLE_2 | paper.TUNED_MAX_SHIFT
    return bleu_table(cells, "Table 2: macro-averaged BLEU", columns, of_paper)


def newstest_columns(cells: Cells) -> dict[str, str]:
    """All test sets and their average; the paper's are known by their years."""
    return {name: name.removeprefix("newstest") for name in cells.subsets} | {ALL: "Average"}


def table_5(cells: Cells) -> Table:
    """BLEU on each test set."""
    title = "Table 5: BLEU on each test set"
    return bleu_table(cells, title, newstest_columns(cells), paper.TABLE_5)


def table_6(cells: Cells) -> Table:
    """Training times."""
    rows: list[list[str] | None] = []
    for setting in SETTINGS:
        if rows:
            rows.append(RULE)
        for variant in cells.variants(setting):
            start = [setting.upper(), variant_title(variant)]
            numbers = [
                cells.training(setting, variant, name)
                for name in ("seconds", "updates", "parameters")
            ]
            hardware = cells.hardware(setting, variant)
            rows.append([*start, "ours", hardware, *numbers, cells.speed(setting, variant)])
            if cells.is_papers and variant[1] is None:
                rows.append([*start, "paper", *papers_times(setting, variant[0])])
    header = ["Dataset", "Model", "Source", "Hardware", "Training time (s)", "Updates"]
    header += ["Parameters", "Speed"]
    return Table(f"Table 6: training time ({cells.name})", header, rows)


def papers_times(setting: str, model: str) -> list[str]:
    """The paper's row of table 6, with the speed that table 2 gives."""
    if (setting, model) not in paper.TABLE_6:
        return [NOT_REPORTED] * 5
    hardware, seconds, parameters = paper.TABLE_6[setting, model]
    speed = speed_cell(paper.TABLE_2[setting, model][-1])
    return [hardware, f"{seconds:,}", f"{paper.UPDATES:,}", parameters, speed]


def table_7(cells: Cells) -> Table:
    """fairseq's recipe against the paper's hyperparameters, both on VANILLA."""
    columns = newstest_columns(cells)
    rows: list[list[str] | None] = []
    recipes = {"scaling_nmt": "fairseq's recipe", "vanilla": "the paper's recipe"}
    for model in PAPERS_MODELS:
        if rows:
            rows.append(RULE)
        for setting, recipe in recipes.items():
            variant = (model, None)
            scores = [cells.score(setting, variant, subset) for subset in columns]
            seeds = cells.seeds(setting, variant)
            rows.append([model.upper(), recipe, "ours", *scores, seeds])
        if model == "ape" and cells.is_papers:
            for name, numbers in paper.TABLE_7.items():
                scores = [f"{score:.2f}" for score in numbers]
                rows.append(["APE", name, "paper", *scores, str(paper.SEEDS["vanilla"])])
    header = ["Model", "Implementation", "Source", *columns.values(), "Seeds"]
    return Table(f"Table 7: fairseq's own recipe ({cells.name})", header, rows)


def metrics_table(cells: Cells) -> Table:
    """chrF2, TER and lowercased tokenized BLEU on test, as far as there are some."""
    metrics = [
        metric
        for metric in (CHRF, TER, LOWERCASED_TOKENIZED)
        if any(metric in result.other_metrics for result in cells.results)
    ]
    rows: list[list[str] | None] = []
    for setting, kind, block in blocks() if metrics else []:
        if rows:
            rows.append(RULE)
        for variant in cells.variants(setting):
            scores = [cells.score(setting, variant, "test", kind, metric) for metric in metrics]
            seeds = cells.seeds(setting, variant)
            rows.append([block, variant_title(variant), "ours", *scores, seeds])
    note = "TER, of which less is better, is of sentences: joined ones have none."
    header = ["Dataset", "Model", "Source", *metrics, "Seeds"]
    title = f"Other metrics, macro-averaged on test ({cells.name})"
    return Table(title, header, rows, [note] if TER in metrics else [])


TABLES = {"2": table_2, "5": table_5, "6": table_6, "7": table_7, "metrics": metrics_table}


def main(arguments: list[str]) -> None:
    """Print the paper's tables from result files."""
    parser = Parser(
        prog="shape-fairseq tables",
        description=main.__doc__,
        example="runs/demo/results/*.json --format markdown",
    )
    parser.add_argument("results", type=Path, nargs="+", help="result files of recipes/evaluate.sh")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--table", choices=TABLES, help="only this one (default: all)")
    args = parser.parse_args(arguments)
    chosen = [TABLES[args.table]] if args.table else TABLES.values()
    all_cells = by_data([results.read(path) for path in args.results])
    tables = [table(cells) for cells in all_cells for table in chosen]
    print("\n\n".join(FORMATS[args.format](table) for table in tables if table.rows))
