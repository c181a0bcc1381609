"""One HTML page, without network, on a folder of runs: the paper's claims, tables and figures."""

import base64
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from ..command_line import Parser
from ..data_folder import PARAMETERS, SETTINGS, read_parameters
from ..errors import UserError
from ..evaluation import results, tables
from ..evaluation.cells import by_data
from ..evaluation.results import Result, title_of
from ..evaluation.table import Table, without_missing
from ..files import atomic_outputs, refuse_existing
from . import base, report_text, speed, swap
from .claims import CLAIMS, FAILS, UNDECIDED, Claim, Runs, Verdict
from .report_text import SECTIONS, Words

FOLDER = Path(__file__).parent
TEMPLATE = "report.html.j2"
SMALL_RUN = """\
A short training of small models shows whether a model cares where a sentence stands. It may not
show that SHAPE translates better than APE: SHAPE learns more slowly at first, and the paper trains
for 200,000 updates. The report says of each claim why a small run may not show it.
Longer trainings, on real text: docs/results/README.md"""
MIME = {".svg": "image/svg+xml", ".png": "image/png"}
TABLES_OF: dict[str, Callable[[dict], Table]] = {"swap": swap.table, "speed": speed.table}


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The files of one analysis: analysis/SETTING/NAME.json, or a folder deeper for a seed."""

    name: str
    setting: str  # empty: of all settings
    run: str  # empty, or seed2 and the like
    path: Path
    record: base.Record

    @property
    def heading(self) -> str:
        return f"{self.setting.upper()} {self.run}".strip()

    @property
    def table(self) -> Table | None:
        make = TABLES_OF.get(self.name)
        return make(self.record.result) if make else None

    @property
    def images(self) -> list["Image"]:
        """All figures; that of the analysis' own name comes before those with longer names."""
        captions = SECTIONS[self.name].captions
        vectors, pixels = (
            sorted(self.path.parent.glob(f"{self.name}*.{ending}"), key=lambda path: path.stem)
            for ending in ("svg", "png")
        )
        return [Image(path, captions.get(path.stem, "")) for path in vectors or pixels]


@dataclasses.dataclass(frozen=True)
class Image:
    """A figure within the page."""

    path: Path
    caption: str

    @property
    def data(self) -> str:
        """The file as a data URI."""
        text = base64.b64encode(self.path.read_bytes()).decode()
        return f"data:{MIME[self.path.suffix]};base64,{text}"


@dataclasses.dataclass(frozen=True)
class Section:
    """What one kind of analysis shows, a setting after the other."""

    name: str
    words: Words
    parts: list[Analysis]
    claims: list[int]  # the numbers of the claims that it is about


@dataclasses.dataclass(frozen=True)
class Folder:
    """All that was measured in a folder of runs."""

    analyses: list[Analysis]
    scored: list[Result]

    @property
    def runs(self) -> Runs:
        """The measurements as the claims are judged by."""
        by_name: dict[tuple[str, str], list[dict]] = {}
        for analysis in self.analyses:
            key = (analysis.setting, analysis.name)
            by_name.setdefault(key, []).append(analysis.record.result)
        return Runs(by_name, by_data(self.scored))


def read_folder(runs: Path) -> Folder:
    """All that was measured in a folder of runs; nothing at all is an error."""
    analyses = [
        read_analysis(path, runs / "analysis")
        for path in sorted((runs / "analysis").rglob("*.json"))
        if path.stem in SECTIONS
    ]
    scored = [results.read(path) for path in sorted((runs / "results").glob("*.json"))]
    if not analyses and not scored:
        raise UserError(f"{runs} has no analysis/SETTING/*.json and no results/*.json to report")
    return Folder(analyses, scored)


def read_analysis(path: Path, top: Path) -> Analysis:
    """One analysis, which setting it is of, and which of several runs it is."""
    record = base.read(path)
    if record.analysis != path.stem:
        raise UserError(f"{path} is a result of {record.analysis}: give it that name")
    setting, *run = (*path.parent.relative_to(top).parts, "")
    return Analysis(path.stem, setting, " ".join(filter(None, run)), path, record)


def score_tables(runs: Runs) -> Iterator[Table]:
    """The paper's tables 2, 5, 6 and 7 and other metrics, as far as there are results for them."""
    for cells in runs.cells:
        for number, make in tables.TABLES.items():
            if number == "7" and all(result.setting != "scaling_nmt" for result in cells.results):
                continue
            if (table := without_missing(make(cells))).rows:
                yield table


def sections(analyses: list[Analysis]) -> Iterator[Section]:
    """Every kind of analysis, also those of which there is none."""
    for name, words in SECTIONS.items():
        parts = [analysis for analysis in analyses if analysis.name == name]
        order = report_text.in_order({part.setting for part in parts}, SETTINGS)
        parts.sort(key=lambda part: (order.index(part.setting), part.run))
        about = [number for number, claim in enumerate(CLAIMS, start=1) if claim.section == name]
        yield Section(name, words, parts, about)


def signatures(folder: Folder) -> Iterator[tuple[str, str]]:
    """What every number depends on."""

    def text(signature: object) -> str:
        return json.dumps(signature, indent=1, ensure_ascii=False)

    for analysis in folder.analyses:
        yield f"{analysis.name} {analysis.heading.lower()}", text(analysis.record.signature)
    for result in folder.scored:
        name = f"BLEU of {title_of(result)}, {result.setting}, seed {result.seed}"
        yield name, text(result.signature)


def made_of(data: Path, scored: list[Result]) -> Iterator[tuple[str, str]]:
    """Which data and models this is about."""
    if (data / PARAMETERS).exists():
        parameters = read_parameters(data)
        yield "data", " ".join(f"{name}={value}" for name, value in parameters.items())
    known: dict[str, set] = {
        "size": {result.size for result in scored},
        "updates": {result.training["updates"] for result in scored},
        "seeds": {result.seed for result in scored},
        "hardware": {result.training["hardware"] for result in scored},
        "SHAPE's K": {result.max_shift for result in scored if result.max_shift is not None},
    }
    for name, values in known.items():
        if values:
            yield name, ", ".join(map(str, sorted(values)))


def summary(runs: Runs, verdicts: list[tuple[Claim, Verdict]]) -> str:
    """The scores and the claims for the terminal."""
    scores = [without_missing(tables.table_2(cells)) for cells in runs.cells]
    rows = [[claim.sentence, verdict.verdict, verdict.measured] for claim, verdict in verdicts]
    claims = Table("The paper's claims, in these runs", ["Claim", "Verdict", "Measured"], rows)
    parts = [table.text() for table in [*scores, claims]]
    if any(verdict.verdict in (FAILS, UNDECIDED) for _, verdict in verdicts):
        parts.append(SMALL_RUN)
    return "\n\n".join(parts)


def page(
    title: str, data: Path, folder: Folder, runs: Runs, verdicts: list[tuple[Claim, Verdict]]
) -> str:
    """The whole report."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
    )
    all_sections = list(sections(folder.analyses))
    tables_of_scores = list(score_tables(runs))
    measured = {section.name for section in all_sections if section.parts}
    return environment.get_template(TEMPLATE).render(
        title=title,
        sentences=report_text.first_sentences(
            folder.scored, runs.cells, [verdict for _, verdict in verdicts]
        ),
        names=list(report_text.names(folder.scored)),
        claims=verdicts,
        shown=measured | ({"tables"} if tables_of_scores else set()),
        sections=[section for section in all_sections if section.parts],
        not_measured=[section for section in all_sections if not section.parts],
        tables=tables_of_scores,
        made_of=list(made_of(data, folder.scored)),
        signatures=list(signatures(folder)),
    )


def main(arguments: list[str]) -> None:
    """Write one self-contained HTML page on a folder of runs."""
    parser = Parser(
        prog="shape-fairseq report",
        description=main.__doc__,
        example="runs/demo --out report.html",
    )
    parser.add_argument(
        "runs", type=Path, metavar="RUNS", help="folder with analysis/SETTING/*.json and results/"
    )
    parser.add_argument("--data", type=Path, help="folder of data_prep (default: RUNS/data)")
    parser.add_argument("--out", type=Path, help="default: RUNS/report.html")
    args = parser.parse_args(arguments)
    out = args.out or args.runs / "report.html"
    refuse_existing(out)
    folder = read_folder(args.runs)
    runs = folder.runs
    verdicts = [(claim, claim.check(runs)) for claim in CLAIMS]
    data = args.data or args.runs / "data"
    text = page(args.runs.resolve().name, data, folder, runs, verdicts)
    with atomic_outputs(out) as (file,):
        file.write(f"{text}\n".encode())
    print(summary(runs, verdicts), f"All tables and figures: {out}", sep="\n\n")
