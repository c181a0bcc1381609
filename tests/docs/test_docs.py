"""The pages: links and paths lead somewhere, drawings are up to date, the first page is short."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted(
    TOP / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.split()
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ON_GITHUB = "../../actions/"  # relative to the page there: the state of a workflow
PATH = re.compile(
    r"(?<![\w/$.-])((?:shape_fairseq|recipes|data_prep|benchmarks|tests|docs)/[\w./-]*\w)(?![\w*{…/])"
)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        if link.startswith(ON_GITHUB):
            link = link.replace(ON_GITHUB, ".github/").removesuffix("/badge.svg")
        name, _, fragment = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_named_paths_exist(page):
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    missing = [
        path for path in named if not (TOP / path).exists() and not (page.parent / path).exists()
    ]
    assert not missing


def test_the_first_page_is_short_and_leads_to_all_others():
    text = (TOP / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    links = {(TOP / link.partition("#")[0]).resolve() for link in LINK.findall(text)}
    assert [page for page in PAGES if "docs" in page.parts and page not in links] == []


@pytest.mark.parametrize("name", ["idea", "house"])
def test_drawings_are_as_their_scripts_draw_them(name, monkeypatch):
    monkeypatch.syspath_prepend(str(TOP / "docs"))  # one takes its style from the other
    drawing = runpy.run_path(str(TOP / "docs" / f"draw_{name}.py"))["drawing"]()
    assert (TOP / "docs" / f"{name}.svg").read_text(encoding="utf-8") == drawing
