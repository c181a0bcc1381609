"""A table that can be printed as text, Markdown, LaTeX or HTML."""

import dataclasses
import html
from collections.abc import Callable, Sequence

MISSING = "missing"  # a cell that was not measured here
NOT_REPORTED = "-"  # a number that the paper does not have
RULE = None  # a row that is a line


@dataclasses.dataclass
class Table:
    """A table that can be printed in any format."""

    title: str
    header: list[str]
    rows: Sequence[list[str] | None]
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
            return f"| {' | '.join(escape_markdown(cell) for cell in row)} |"

        body = [line(row) for row in self.rows if row is not RULE]
        rule = "|---" * len(self.header) + "|"
        lines = [f"**{escape_markdown(self.title)}**", "", line(self.header), rule, *body]
        return "\n".join([*lines, *(f"\n{escape_markdown(note)}" for note in self.notes)])

    def latex(self) -> str:
        def line(row: list[str]) -> str:
            return " & ".join(map(escape_latex, row)) + r" \\"

        body = [r"\midrule" if row is RULE else line(row) for row in self.rows]
        caption = " ".join([f"{self.title}.", *self.notes])
        return "\n".join(
            [
                r"\begin{table*}",
                rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
                r"\toprule",
                line(self.header),
                r"\midrule",
                *body,
                r"\bottomrule",
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
                "<tbody>",
                *body,
                "</tbody></table>",
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


def escape_markdown(text: str) -> str:
    """Text with what Markdown would take for tags, or for the end of a cell, written as text."""
    return text.replace("<", "&lt;").replace("|", "\\|")


def escape_latex(text: str) -> str:
    """Text with what LaTeX would take for commands written as text."""
    special = {character: f"\\{character}" for character in "&%_#{}$"}
    special |= {"±": r"$\pm$", "<": r"$<$", ">": r"$>$", "\\": r"\textbackslash{}"}
    special |= {"^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return "".join(special.get(character, character) for character in text)


def without_missing(table: Table) -> Table:
    """The table without our rows in which nothing was measured, and without double lines."""
    rows: list[list[str] | None] = []
    for row in table.rows:
        if row is RULE:
            if rows and rows[-1] is not RULE:
                rows.append(row)
        elif any(cell != MISSING for cell in row[3:]):
            rows.append(row)
    if rows and rows[-1] is RULE:
        rows.pop()
    return dataclasses.replace(table, rows=rows)
