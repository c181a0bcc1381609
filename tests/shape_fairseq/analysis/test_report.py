"""The report as a reader gets it: on a phone, in the dark, without network, without torch."""

import json
import re
import shutil
import sys

import pytest

from shape_fairseq.analysis import report
from shape_fairseq.analysis.claims import FAILS, HOLDS, UNDECIDED, UNKNOWN, Verdict
from shape_fairseq.errors import UserError
from tests import browser, processes


def test_the_report_shows_what_was_measured_and_needs_no_network(runs):
    report.main([str(runs)])
    text = (runs / "report.html").read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("data:image/svg+xml;base64,") == 1
    row = next(line for line in text.splitlines() if "SHAPE extrapolates better" in line)
    assert ">holds<" in row and "SHAPE 100.00, APE" in row and "29.80" in row
    assert "paired bootstrap), 10 sentences" in row and "In a small run: Few test" in row
    row = next(line for line in text.splitlines() if "Moving a sentence" in line)
    assert ">not measured<" in row and "drop 1.45" in row
    assert "Table 2" in text and "SHAPE (K=20)" in text
    assert "missing" not in text  # rows of models that were not trained are left out
    assert text.count("<code>shape-fairseq ") == len(report.SECTIONS) - 1  # what is not measured
    with pytest.raises(UserError, match="exists already"):
        report.main([str(runs)])


def test_the_terminal_says_why_a_small_run_may_not_show_a_claim(runs):
    folder = report.read_folder(runs)
    claim = report.CLAIMS[0]
    for verdict, told in ((HOLDS, False), (UNKNOWN, False), (FAILS, True), (UNDECIDED, True)):
        text = report.summary(folder.runs, [(claim, Verdict("measured", verdict))])
        assert (report.SMALL_RUN in text) is told


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no analysis"):
        report.main([str(tmp_path)])
    broken = tmp_path / "analysis" / "vanilla" / "swap.json"
    broken.parent.mkdir(parents=True)
    broken.write_text(json.dumps({"result": {}}))
    with pytest.raises(UserError, match="the field analysis is missing"):
        report.main([str(tmp_path)])
    assert not (tmp_path / "report.html").exists()


def test_text_of_results_is_no_markup(runs, make_result):
    """The report shows what names and models write, and runs none of it."""
    script = "<script>alert(1)</script>"
    training = {"updates": 10, "seconds": 5.0, "parameters": 61, "hardware": script}
    result = make_result("rpe", True, seed=7, training=training)
    report.results.write(result, runs / "results" / "rpe.json")
    report.main([str(runs), "--data", str(runs)])
    text = (runs / "report.html").read_text()
    assert script not in text and "&lt;script&gt;" in text


def test_the_runs_of_several_seeds_are_shown_one_after_the_other(runs):
    first = runs / "analysis" / "extrapolate"
    shutil.copytree(first, first / "seed2")
    folder = report.read_folder(runs)
    assert [part.heading for part in folder.analyses] == ["EXTRAPOLATE", "EXTRAPOLATE seed2"]
    assert len(folder.runs.analyses["extrapolate", "length-bleu"]) == 2
    report.main([str(runs)])
    assert "<h3>EXTRAPOLATE seed2</h3>" in (runs / "report.html").read_text()


def imported_by(code: str, blocked: tuple[str, ...] = ()) -> str:
    """Which of the heavy packages some code imports, in a process of its own."""
    program = f"""
import sys
for name in {blocked}:
    sys.modules[name] = None  # an import fails
{code}
print([name for name in ("torch", "fairseq", "matplotlib") if sys.modules.get(name)])
"""
    result = processes.run(sys.executable, "-c", program)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def test_the_report_and_tables_are_made_without_torch(runs):
    results = [str(path) for path in sorted((runs / "results").iterdir())]
    code = f"""
from shape_fairseq.analysis import report
from shape_fairseq.evaluation import tables
report.main([{str(runs)!r}])
tables.main({results})
"""
    assert imported_by(code, blocked=("torch", "fairseq", "matplotlib")) == "[]"
    assert (runs / "report.html").exists()


def test_the_first_sentences_say_what_was_compared_and_what_came_out(runs):
    report.main([str(runs)])
    text = (runs / "report.html").read_text()
    first = re.findall("<p class=lead>(.+)</p>", text)
    assert first == [
        "APE and SHAPE were trained on EXTRAPOLATE for 10 updates with one seed, and translated the"
        " same test sets.",
        "BLEU on the test set, the best model first, was on EXTRAPOLATE: SHAPE (K=20)\u00a080.00,"
        " APE\u00a040.00.",
        "Of 9 claims of the paper, 1 holds and 8 were not measured in these runs.",
    ]
    assert text.index("class=lead") < text.index("id=claims") < text.index("id=length-bleu")
    assert text.index("id=length-bleu") < text.index("id=tables") < text.index("id=made-of")


def test_a_claim_and_its_figure_lead_to_each_other(runs):
    report.main([str(runs)])
    text = (runs / "report.html").read_text()
    targets = set(re.findall(r'id="?([\w-]+)', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= targets
    row = next(line for line in text.splitlines() if "SHAPE extrapolates better" in line)
    number = re.search(r'id="claim-(\d+)"', row)[1]
    assert '<a href="#length-bleu">Figure</a>' in row
    section = text[text.index("<section id=length-bleu>") :]
    assert f'<a href="#claim-{number}">Claim {number}</a>' in section.partition("</p>")[0]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser.chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


# Text that reaches over the window, or over a box that neither grows nor scrolls.
CUT_OFF = """
[...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (!element.innerText?.trim() || !box.width || element.closest(".scroll, .picture, pre"))
    return false;
  const hidden = getComputedStyle(element).overflowX !== "visible";
  return box.right > innerWidth + 1 || box.left < -1 || hidden;
}).map(element => `${element.tagName} ${element.className}: ${element.innerText.slice(0, 60)}`)
"""
SIZES = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
PICTURES = "[...document.images].map(image => image.decode().then(() => image.naturalWidth))"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["desktop", "phone"])
def test_a_browser_shows_all_of_the_report(page, runs, width, dark):
    """Chromium opens it without a complaint, asks for nothing, and cuts nothing off."""
    report.main([str(runs)])
    page.show(runs / "report.html", width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.complaints == []
    assert page.requests == [(runs / "report.html").as_uri()]
    pictures = page.evaluate(f"Promise.all({PICTURES})")
    assert len(pictures) == 1 and min(pictures) > 100
    assert page.evaluate(SIZES) == [width, width]
    assert page.evaluate(CUT_OFF) == []
    brightness = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", brightness)[0]) < 100) == dark
    first_screen = page.evaluate(
        "document.querySelectorAll('.lead')[2].getBoundingClientRect().bottom"
    )
    assert first_screen < 800


def test_the_printed_report_is_black_on_white_and_has_what_a_click_opens(page, runs):
    report.main([str(runs)])
    page.show(runs / "report.html", 794, dark=True, media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.querySelector('.claims small').checkVisibility()")
    assert page.evaluate("document.querySelector('nav').offsetHeight") == 0
    assert page.evaluate(CUT_OFF) == []
    assert page.pdf().startswith(b"%PDF")
