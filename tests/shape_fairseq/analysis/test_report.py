"""The report as a reader gets it: on a phone, in the dark, without network, without torch."""

import json
import shutil
import sys

import pytest

from shape_fairseq.analysis import report
from shape_fairseq.errors import UserError
from tests import processes


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
    assert text.count("Not measured.") == len(report.SECTIONS) - 1
    with pytest.raises(UserError, match="exists already"):
        report.main([str(runs)])


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


def screenshot(page, image, width: int, dark: bool):
    """The page as Chromium draws it: height x width x RGB, from 0 to 1."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium to look at the report with (Debian: apt-get install chromium)")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    options += ["--disable-background-networking", "--disable-component-update"]
    options += ["--hide-scrollbars", f"--user-data-dir={image}-profile"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    options += [f"--screenshot={image}", f"--window-size={width},3000"]
    result = processes.run(chromium, *options, page.as_uri())
    assert result.returncode == 0, result.stderr
    from matplotlib.image import imread

    return imread(image)[..., :3]


def test_the_report_fits_a_phone_in_light_and_dark(runs, tmp_path):
    report.main([str(runs)])
    for dark in (False, True):
        pixels = screenshot(runs / "report.html", tmp_path / f"{dark}.png", 390, dark)
        assert pixels.shape[1] == 390
        assert (pixels[0, 0].mean() < 0.3) == dark
        edge = pixels[:, -3:]
        assert (edge == edge[0, 0]).all()  # nothing reaches over the right edge
        assert pixels.std() > 0.05  # and there is something on the page
