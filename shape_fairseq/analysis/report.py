"""One HTML page, without network, on a folder of runs: the paper's claims, tables and figures."""

import argparse
import base64
import html
import json
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from ..evaluation import results, tables
from ..evaluation.tables import MISSING, RULE, Table
from ..files import atomic_outputs, refuse_existing
from . import base, speed, swap
from .claims import CLAIMS, FAILS, HOLDS, UNKNOWN, Runs

STYLE = Path(__file__).with_name("report.css")
SETTINGS = ("vanilla", "extrapolate", "interpolate")
# What each analysis shows: its name, title, and one sentence.
SECTIONS = {
    "similarity": (
        "Shift invariance",
        "Cosine similarity of encoder states when all positions are shifted, averaged over"
        " positions: 1.00 everywhere means that absolute positions do not matter. First by layer,"
        " then the last layer for each sequence.",
    ),
    "swap": (
        "Swapped sentences",
        "BLEU of the same sentence translated as the first and as the last of its sequence, on"
        " training data, so that only its place is new to the model.",
    ),
    "length-bleu": (
        "BLEU by source length",
        "The improvement over APE and the absolute scores; gray lengths do not occur in training.",
    ),
    "token-scores": (
        "Scores of gold tokens",
        "The ratio of gold tokens to which SHAPE gives a higher probability than APE, by position"
        " and by frequency in the training data; n is the number of tokens in a cell.",
    ),
    "curves": ("Learning curves", "Validation perplexity by update and by wall clock."),
    "lengths": ("Sequence lengths", "The distribution of source lengths in the training data."),
    "speed": (
        "Speed and memory",
        "Training and generation of all models in turns on the same batches, relative to APE.",
    ),
}
TABLES_OF = {"swap": swap.table, "speed": speed.table}
MIME = {".svg": "image/svg+xml", ".png": "image/png"}


def find_analyses(runs: Path) -> dict[tuple[str, str], Path]:
    """The result files of all analyses: ("interpolate", "swap") and so on."""
    found = {}
    for path in sorted((runs / "analysis").rglob("*.json")):
        if path.stem in SECTIONS:
            folder = path.parent.relative_to(runs / "analysis")
            found[str(folder) if folder.name else "", path.stem] = path
    return found


def inlined(path: Path) -> str:
    """A file as a data URI."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:{MIME[path.suffix]};base64,{data}"


def figure(json_path: Path, title: str) -> str:
    """All figures of an analysis."""
    images = []
    # The figure of the analysis' own name comes before those with more in their names.
    vectors, pixels = (
        sorted(json_path.parent.glob(f"{json_path.stem}*.{ending}"), key=lambda path: path.stem)
        for ending in ("svg", "png")
    )
    for image in vectors or pixels:
        alt = html.escape(f"{title}: {image.stem.replace('-', ' ')}", quote=True)
        images.append(f'<img src="{inlined(image)}" alt="{alt}">')
    return f"<figure>{''.join(images)}</figure>" if images else "<p>The figure is missing.</p>"


def claims_table(runs: Runs) -> Iterator[str]:
    """The claims with their numbers; on a phone each is a card."""
    kinds = {HOLDS: "yes", FAILS: "no", UNKNOWN: "unknown"}
    yield "<table class=claims><thead><tr><th>Claim</th><th>Measured here</th><th>Paper</th>"
    yield "<th>Verdict</th></tr></thead><tbody>"
    for claim in CLAIMS:
        found = claim.check(runs)
        yield (
            f"<tr><td><b>{html.escape(claim.sentence)}</b> <small>{html.escape(claim.where)}."
            f" Holds if: {html.escape(claim.criterion)}</small></td>"
            f'<td data-name="Measured here">{html.escape(found.measured)}</td>'
            f'<td data-name="Paper">{html.escape(claim.papers_number)}</td>'
            f'<td><span class="verdict {kinds[found.verdict]}">{found.verdict}</span></td></tr>'
        )
    yield "</tbody></table>"


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
    return Table(table.title, table.header, rows, table.notes)


def score_tables(all_cells: list[tables.Cells]) -> Iterator[str]:
    """The paper's tables 2, 5, 6 and 7 as far as there are results for them."""
    for cells in all_cells:
        for number, make in tables.TABLES.items():
            if number == "7" and all(one.setting != "scaling_nmt" for one in cells.results):
                continue
            yield f"<div class=scroll>{without_missing(make(cells)).html()}</div>"


def sections(found: dict[tuple[str, str], Path]) -> Iterator[str]:
    """Every analysis, with its figures, a setting after the other."""
    for name, (title, sentence) in SECTIONS.items():
        yield f"<section id={name}><h2>{title}</h2><p>{sentence}</p>"
        paths = {setting: path for (setting, kind), path in found.items() if kind == name}
        if not paths:
            yield "<p class=note>Not measured.</p>"
        for setting in sorted(paths, key=lambda one: (*SETTINGS, one).index(one)):
            if len(paths) > 1 and setting:
                yield f"<h3>{html.escape(setting.upper())}</h3>"
            if name in TABLES_OF:
                table = TABLES_OF[name](base.read(paths[setting])["result"])
                yield f"<div class=scroll>{table.html()}</div>"
            yield figure(paths[setting], title)
        yield "</section>"


def signatures(found: dict[tuple[str, str], Path], scored: list[results.Result]) -> Iterator[str]:
    """What every number depends on, folded away."""
    yield "<section id=signatures><h2>Signatures</h2>"
    for (setting, name), path in found.items():
        yield _details(f"{name} {setting}", base.read(path)["signature"])
    for one in scored:
        yield _details(
            f"BLEU of {tables.title_of(one)}, {one.setting}, seed {one.seed}", one.signature
        )
    yield "</section>"


def _details(title: str, signature: dict) -> str:
    text = html.escape(json.dumps(signature, indent=1, ensure_ascii=False))
    return f"<details><summary>{html.escape(title)}</summary><pre>{text}</pre></details>"


def subtitle(data: Path, scored: list[results.Result]) -> str:
    """Which data and models this is about."""
    parts = []
    if (data / "parameters.txt").exists():
        parameters = results.read_parameters(data / "parameters.txt")
        parts.append("data: " + " ".join(f"{name}={value}" for name, value in parameters.items()))
    known = {
        "size": {one.size for one in scored},
        "updates": {one.training["updates"] for one in scored},
        "hardware": {one.training["hardware"] for one in scored},
        "SHAPE's K": {one.max_shift for one in scored if one.max_shift is not None},
    }
    for name, values in known.items():
        if values:
            parts.append(f"{name}: {', '.join(map(str, sorted(values)))}")
    return "; ".join(parts)


def read_scores(runs: Path) -> list[results.Result]:
    return [results.read(path) for path in sorted((runs / "results").glob("*.json"))]


def measured_in(runs: Path) -> Runs:
    """All that was measured in a folder of runs; nothing at all is an error."""
    found, scored = find_analyses(runs), read_scores(runs)
    if not found and not scored:
        raise UserError(f"{runs} has no analysis/SETTING/*.json and no results/*.json to report")
    analyses = {key: base.read(path)["result"] for key, path in found.items()}
    return Runs(analyses, tables.by_data(scored))


def summary(measured: Runs) -> str:
    """The scores and the claims for the terminal."""
    scores = [without_missing(tables.table_2(cells)) for cells in measured.cells]
    verdicts = [(claim.sentence, claim.check(measured)) for claim in CLAIMS]
    rows = [[sentence, found.verdict, found.measured] for sentence, found in verdicts]
    claims = Table("The paper's claims, in these runs", ["Claim", "Verdict", "Measured"], rows)
    return "\n\n".join(table.text() for table in [*scores, claims])


def page(runs: Path, data: Path) -> str:
    """The whole report."""
    found, scored = find_analyses(runs), read_scores(runs)
    measured = measured_in(runs)
    all_cells = measured.cells
    body = [
        "<header><h1>SHAPE, APE and RPE</h1>",
        "<p>What Kiyono et al. (2021) claim about position representations in Transformers, and"
        " what these runs show.</p>",
        f"<p class=note>{html.escape(subtitle(data, scored))}</p></header>",
        "<section id=claims><h2>The paper's claims</h2>",
        *claims_table(measured),
        "</section><section id=tables><h2>Tables</h2>",
        *(score_tables(all_cells) if scored else ["<p class=note>Not measured.</p>"]),
        "</section>",
        *sections(found),
        *signatures(found, scored),
    ]
    return "\n".join(
        [
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            '<meta name=viewport content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>SHAPE, APE and RPE: {html.escape(runs.resolve().name)}</title>",
            f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
            *body,
            "</main></body></html>\n",
        ]
    )


def main(arguments: list[str]) -> None:
    """Write one self-contained HTML page on a folder of runs."""
    parser = argparse.ArgumentParser(prog="shape-fairseq report", description=main.__doc__)
    parser.add_argument(
        "runs", type=Path, metavar="RUNS", help="folder with analysis/SETTING/*.json and results/"
    )
    parser.add_argument("--data", type=Path, help="folder of data_prep (default: RUNS/data)")
    parser.add_argument("--out", type=Path, help="default: RUNS/report.html")
    args = parser.parse_args(arguments)
    out = args.out or args.runs / "report.html"
    refuse_existing(out)
    text = page(args.runs, args.data or args.runs / "data")
    with atomic_outputs(out) as (file,):
        file.write(text.encode())
    print(summary(measured_in(args.runs)), f"All tables and figures: {out}", sep="\n\n")
