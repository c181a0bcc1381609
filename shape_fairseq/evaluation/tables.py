"""The paper's tables 2, 5, 6 and 7 from result files, with the paper's numbers beside ours."""

import argparse
import dataclasses
import html
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import UserError
from . import paper, results
from .results import ALL, AS_IN_PAPER, SPLIT, Result

MISSING = "missing"
NOT_REPORTED = "-"
SETTINGS = ("vanilla", "extrapolate", "interpolate")
MODELS = ("ape", "rpe", "shape")
RULE = None  # a row that is a line

Variant = tuple[str, int | None]


@dataclasses.dataclass
class Table:
    """A table that can be printed in any format."""

    title: str
    header: list[str]
    rows: list[list[str] | None]
    notes: list[str] = dataclasses.field(default_factory=list)

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._cells(), strict=True)]

        def line(row: list[str]) -> str:
            return "  ".join(map(str.ljust, row, widths)).rstrip()

        rule = "  ".join("-" * width for width in widths)
        body = [rule if row is RULE else line(row) for row in self.rows]
        return "\n".join([self.title, line(self.header), rule, *body, *self.notes])

    def markdown(self) -> str:
        def line(row: list[str]) -> str:
            return f"| {' | '.join(cell.replace('<', '&lt;') for cell in row)} |"

        body = [line(row) for row in self.rows if row is not RULE]
        rule = "|---" * len(self.header) + "|"
        lines = [f"**{self.title}**", "", line(self.header), rule, *body]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def latex(self) -> str:
        def line(row: list[str]) -> str:
            return " & ".join(map(escape_latex, row)) + r" \\"

        body = [r"\midrule" if row is RULE else line(row) for row in self.rows]
        caption = " ".join([f"{self.title}.", *self.notes])
        return "\n".join(
            [
                r"\begin{table*}",
                rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
                *(r"\toprule", line(self.header), r"\midrule", *body, r"\bottomrule"),
                r"\end{tabular}",
                rf"\caption{{{escape_latex(caption)}}}",
                r"\end{table*}",
            ]
        )

    def html(self) -> str:
        """A <table> whose caption is the title; a line between rows starts a new <tbody>."""

        def line(row: list[str], tag: str = "td") -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

        body = ["</tbody><tbody>" if row is RULE else line(row) for row in self.rows]
        return "\n".join(
            [
                f"<table><caption>{html.escape(self.title)}</caption>",
                f"<thead>{line(self.header, 'th')}</thead>",
                *("<tbody>", *body, "</tbody></table>"),
                *(f"<p class=note>{html.escape(note)}</p>" for note in self.notes),
            ]
        )

    def _cells(self) -> list[list[str]]:
        return [self.header, *(row for row in self.rows if row is not RULE)]


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": Table.text,
    "markdown": Table.markdown,
    "latex": Table.latex,
    "html": Table.html,
}


def escape_latex(text: str) -> str:
    """Text with what LaTeX would take for commands written as text."""
    special = {character: f"\\{character}" for character in "&%_#{}$"}
    special |= {"±": r"$\pm$", "<": r"$<$", ">": r"$>$", "\\": r"\textbackslash{}"}
    return "".join(special.get(character, character) for character in text)


def name_of(variant: Variant) -> str:
    """APE, RPE, SHAPE, or SHAPE (K=40)."""
    model, max_shift = variant
    return model.upper() + ("" if max_shift is None else f" (K={max_shift})")


def title_of(result: Result) -> str:
    """The model of a result as tables show it."""
    return name_of(result.variant)


class Cells:
    """The results of one data set and one model size, by setting and model."""

    def __init__(self, found: list[Result]):
        self.results = found
        self.cells: dict[tuple[str, Variant], list[Result]] = {}
        for result in found:
            members = self.cells.setdefault((result.setting, result.variant), [])
            check_same_kind(members, result)
            members.append(result)
        data = found[0].signature["data"]
        self.is_papers = data.get("DATA") == "wmt16" and found[0].size == "base"
        self.groups = found[0].groups
        self.name = f"{data.get('DATA')}, {found[0].size}"
        self.subsets = sum(self.groups.values(), [])

    def variants(self, setting: str) -> list[Variant]:
        """The paper's three models, and SHAPE with any other maximum shift that we have."""
        shifts = {
            shift for (where, (_, shift)) in self.cells if where == setting and shift is not None
        }
        return [
            *((model, None) for model in MODELS),
            *(("shape", shift) for shift in sorted(shifts)),
        ]

    def get(self, setting: str, variant: Variant) -> list[Result]:
        return self.cells.get((setting, variant), [])

    def seeds(self, setting: str, variant: Variant) -> str:
        return str(len(self.get(setting, variant))) if self.get(setting, variant) else MISSING

    def bleu(self, setting: str, variant: Variant, what: str, kind: str = AS_IN_PAPER) -> str:
        """BLEU on a newstest or the macro average of a group, over all seeds."""
        members = self.get(setting, variant)
        averages = (*self.groups, ALL)
        return mean_cell(
            # "valid" is a group, and in small data also the one test set of that group.
            result.macro(what, kind) if what in averages else result.bleu.get(kind, {}).get(what)
            for result in members
        )

    def seconds_per_update(self, setting: str, variant: Variant) -> float | None:
        members = self.get(setting, variant)
        if not members:
            return None
        return statistics.fmean(
            result.training["seconds"] / result.training["updates"] for result in members
        )

    def hardware(self, setting: str, variant: Variant) -> str:
        names = {result.training["hardware"] for result in self.get(setting, variant)}
        return " and ".join(sorted(names)) or MISSING

    def speed(self, setting: str, variant: Variant) -> str:
        """How many updates this model makes while APE makes one, on the same hardware."""
        baseline = self.seconds_per_update(setting, ("ape", None))
        ours = self.seconds_per_update(setting, variant)
        if baseline is None or ours is None:
            return MISSING
        if self.hardware(setting, variant) != self.hardware(setting, ("ape", None)):
            return "other hardware"
        return speed_cell(baseline / ours)


def check_same_kind(members: list[Result], result: Result) -> None:
    """Refuse to average seeds that differ in more than the seed."""

    def kind(one: Result) -> dict:
        same = {name: one.signature[name] for name in ("data", "generation", "sacrebleu")}
        recipe = {
            name: value for name, value in one.signature["training"].items() if name != "SEED"
        }
        return same | {"training": recipe, "updates": one.training["updates"]}

    for other in members:
        if other.seed == result.seed:
            raise UserError(
                f"two results of {title_of(result)} on {result.setting} with seed {result.seed}:"
                " give one of them"
            )
        different = [name for name, value in kind(result).items() if kind(other)[name] != value]
        if different:
            raise UserError(
                f"{title_of(result)} on {result.setting}: seeds {other.seed} and {result.seed}"
                f" differ in {', '.join(different)}, so their mean would say nothing"
            )


def mean_cell(values: Iterable[float | None]) -> str:
    """One score, or the mean of several with their standard deviation."""
    values = list(values)
    if not values or None in values:
        return MISSING
    spread = f" ±{statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def speed_cell(speed: float | None) -> str:
    return NOT_REPORTED if speed is None else f"x{speed:.2f}"


def papers_row(numbers: tuple | None, width: int) -> list[str]:
    """Scores and, last, the speed as the paper prints them; dashes where it has none."""
    if numbers is None:
        return [NOT_REPORTED] * width
    *scores, speed = numbers
    return [*(f"{score:.2f}" for score in scores), speed_cell(speed)]


def bleu_table(cells: Cells, title: str, columns: dict[str, str], of_paper: dict) -> Table:
    """Tables 2 and 5: a block for each setting; INTERPOLATE also split into sentences."""
    rows: list[list[str] | None] = []
    blocks = [(setting, AS_IN_PAPER, setting.upper()) for setting in SETTINGS]
    blocks.append(("interpolate", SPLIT, "INTERPOLATE (split)"))
    for setting, kind, block in blocks:
        if rows:
            rows.append(RULE)
        for variant in cells.variants(setting):
            scores = [cells.bleu(setting, variant, what, kind) for what in columns]
            seeds, speed = cells.seeds(setting, variant), cells.speed(setting, variant)
            rows.append([block, name_of(variant), "ours", *scores, speed, seeds])
            if cells.is_papers and kind == AS_IN_PAPER:
                model, max_shift = variant
                key = (setting, model) if max_shift is None else (setting, model, max_shift)
                theirs = papers_row(of_paper.get(key), len(columns) + 1)
                known = key in of_paper
                seeds = str(paper.SEEDS[setting]) if known else NOT_REPORTED
                rows.append([block, name_of(variant), "paper", *theirs, seeds])
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
                f"{name_of(variant)} on INTERPOLATE: {missing} of {expected} <sep> missing,"
                f" {extra} too many."
            )
    return notes


def table_2(cells: Cells) -> Table:
    columns = {group: group.capitalize() for group in cells.groups}
    of_paper = paper.TABLE_2 | paper.TUNED_MAX_SHIFT
    return bleu_table(cells, "Table 2: macro-averaged BLEU", columns, of_paper)


def newstest_columns(cells: Cells) -> dict[str, str]:
    """All test sets and their average; the paper's are known by their years."""
    return {name: name.removeprefix("newstest") for name in cells.subsets} | {ALL: "Average"}


def table_5(cells: Cells) -> Table:
    title = "Table 5: BLEU on each test set"
    return bleu_table(cells, title, newstest_columns(cells), paper.TABLE_5)


def table_6(cells: Cells) -> Table:
    rows: list[list[str] | None] = []
    for setting in SETTINGS:
        if rows:
            rows.append(RULE)
        for variant in cells.variants(setting):
            start = [setting.upper(), name_of(variant)]
            members = cells.get(setting, variant)
            numbers = [
                whole_numbers(result.training[name] for result in members)
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


def whole_numbers(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.fmean(values):,.0f}" if values else MISSING


def table_7(cells: Cells) -> Table:
    """fairseq's recipe against the paper's hyperparameters, both on VANILLA."""
    columns = newstest_columns(cells)
    rows: list[list[str] | None] = []
    recipes = {"scaling_nmt": "fairseq's recipe", "vanilla": "the paper's recipe"}
    for model in MODELS:
        if rows:
            rows.append(RULE)
        for setting, recipe in recipes.items():
            variant = (model, None)
            scores = [cells.bleu(setting, variant, what) for what in columns]
            seeds = cells.seeds(setting, variant)
            rows.append([model.upper(), recipe, "ours", *scores, seeds])
        if model == "ape" and cells.is_papers:
            for name, numbers in paper.TABLE_7.items():
                scores = [f"{score:.2f}" for score in numbers]
                rows.append(["APE", name, "paper", *scores, str(paper.SEEDS["vanilla"])])
    header = ["Model", "Implementation", "Source", *columns.values(), "Seeds"]
    return Table(f"Table 7: fairseq's own recipe ({cells.name})", header, rows)


TABLES = {"2": table_2, "5": table_5, "6": table_6, "7": table_7}


def by_data(found: list[Result]) -> list[Cells]:
    """Results of different data or model sizes never share a table."""
    parts: dict[tuple, list[Result]] = {}
    for result in found:
        key = (tuple(sorted(result.signature["data"].items())), result.size)
        parts.setdefault(key, []).append(result)
    return [Cells(part) for part in parts.values()]


def main(arguments: list[str]) -> None:
    """Print the paper's tables from result files."""
    parser = argparse.ArgumentParser(prog="shape-fairseq tables", description=main.__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="result files of recipes/evaluate.sh")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--table", choices=TABLES, help="only this one (default: all)")
    args = parser.parse_args(arguments)
    chosen = [TABLES[args.table]] if args.table else TABLES.values()
    all_cells = by_data([results.read(path) for path in args.results])
    texts = [FORMATS[args.format](table(cells)) for cells in all_cells for table in chosen]
    print("\n\n".join(texts))
