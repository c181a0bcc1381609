"""One table in four formats; what its cells hold is text in all of them."""

import pytest

from shape_fairseq.evaluation.table import (
    FORMATS,
    MISSING,
    NOT_REPORTED,
    RULE,
    Table,
    escape_latex,
    without_missing,
)

TABLE = Table("T", ["Model", "BLEU"], [["APE", "9.50"], RULE, ["SHAPE", "10.25"]], ["A note."])


def test_text_has_columns_as_wide_as_their_cells():
    assert TABLE.text().splitlines() == [
        "T",
        "Model  BLEU",
        "-----  -----",
        "APE    9.50",
        "-----  -----",
        "SHAPE  10.25",
        "A note.",
    ]


def test_markdown_has_no_lines_between_rows():
    assert TABLE.markdown().splitlines() == [
        "**T**",
        "",
        "| Model | BLEU |",
        "|---|---|",
        "| APE | 9.50 |",
        "| SHAPE | 10.25 |",
        "",
        "A note.",
    ]


def test_latex_is_a_table_of_booktabs():
    lines = TABLE.latex().splitlines()
    assert lines[1:3] == [r"\begin{tabular}{ll}", r"\toprule"]
    assert lines[5:8] == [r"APE & 9.50 \\", r"\midrule", r"SHAPE & 10.25 \\"]
    assert lines[-2:] == [r"\caption{T. A note.}", r"\end{table*}"]


def test_a_line_starts_another_body_in_html():
    text = TABLE.html()
    assert text.count("<tbody>") == text.count("</tbody>") == 2
    assert "<tr><th>Model</th><th>BLEU</th></tr>" in text and "<p class=note>A note.</p>" in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_without_rows_is_a_header(name):
    assert "Model" in FORMATS[name](Table("T", ["Model"], []))


def test_what_would_be_markup_is_shown_as_it_is():
    odd = Table("<sep> 50%", ["a|b"], [["<sep> & x_1"]], ["<sep> missing"])
    assert odd.text().splitlines() == ["<sep> 50%", "a|b", "-" * 11, "<sep> & x_1", "<sep> missing"]
    markdown = odd.markdown().splitlines()
    assert markdown[0] == "**&lt;sep> 50%**" and markdown[-1] == "&lt;sep> missing"
    assert markdown[2] == r"| a\|b |"
    assert "<sep>" not in odd.html() and "&lt;sep&gt; &amp; x_1" in odd.html()
    latex = odd.latex()
    assert r"$<$sep$>$ \& x\_1 \\" in latex and r"\caption{$<$sep$>$ 50\%. $<$sep" in latex


def test_no_character_is_a_command_of_latex():
    assert escape_latex(r"{\x}") == r"\{\textbackslash{}x\}"
    assert escape_latex("a^b~c #1 $2 ±0.5") == (
        r"a\textasciicircum{}b\textasciitilde{}c \#1 \$2 $\pm$0.5"
    )


def test_rows_that_were_not_measured_are_left_out():
    start = ["VANILLA", "APE"]
    full, half = [*start, "ours", "1.00", "2"], [*start, "ours", MISSING, "2"]
    empty, papers = [*start, "ours", MISSING, MISSING], [*start, "paper", NOT_REPORTED, "5"]
    table = Table("T", ["a", "b", "c", "d", "e"], [RULE, empty, RULE, full, empty, RULE, RULE])
    assert without_missing(table).rows == [full]
    table.rows = [half, RULE, empty, RULE, papers, RULE, empty]
    assert without_missing(table).rows == [half, RULE, papers]
    table.rows = [empty]
    assert without_missing(table).rows == [] and table.rows == [empty]
