"""Draw docs/idea.svg: how APE, RPE and SHAPE tell a Transformer where a word is.

python docs/draw_idea.py
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

WORDS = ("A", "dog", "runs", "home", ".")
BOX, GAP, HEIGHT, MARGIN = 47, 6, 30, 16
PANEL = len(WORDS) * (BOX + GAP) - GAP
WIDTH, TOTAL_HEIGHT = 3 * PANEL + 2 * 2 * MARGIN + 2 * MARGIN, 220
QUERY = 2  # the word from which RPE counts in the drawing
# Okabe and Ito's colours, as in all figures of the project.
COLOURS = {"ape": "#0072B2", "rpe": "#009E73", "shape": "#D55E00"}
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
.title { font-weight: 600; font-size: 17px; }
.name { font-weight: 600; font-size: 15px; }
.small { font-size: 13px; fill: #57606a; }
.page { fill: #ffffff; }
.on { fill: #ffffff; font-weight: 600; }
.word { fill: #eaeef2; stroke: #8c959f; }
.arc { fill: none; stroke-width: 1.8; }
.line { fill: none; stroke: #57606a; stroke-width: 1.8; }
.tip { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; } .on { fill: #ffffff; }
  .word { fill: #262c36; stroke: #656c76; } .page { fill: #0d1117; }
  .line { stroke: #9198a1; } .tip { fill: #9198a1; }
}
"""


def document(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """A drawing with a page of its own: a reader's light or dark may not be the browser's."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' role="img" aria-label="{label}">',
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="10" class="page"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, content: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{content}</text>'


def box(x: float, y: float, content: str, colour: str | None = None) -> str:
    """A word, or with a colour a position."""
    look = f'fill="{colour}"' if colour else 'class="word"'
    rectangle = f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{HEIGHT}" rx="6" {look}/>'
    return rectangle + text(x + BOX / 2, y + 20, content, "on" if colour else "")


def boxes(left: float, y: float, contents: tuple[str, ...], colour: str | None = None) -> str:
    return "".join(
        box(left + number * (BOX + GAP), y, content, colour)
        for number, content in enumerate(contents)
    )


def absolute(left: float, title: str, positions: tuple[str, ...], colour: str, notes: tuple):
    """APE and SHAPE: a position is added to each word."""
    yield text(left + PANEL / 2, 30, title, "title")
    yield boxes(left, 62, WORDS)
    yield text(left + PANEL / 2, 112, "+")
    yield boxes(left, 122, positions, colour)
    yield from (text(left + PANEL / 2, 182 + 20 * n, note, "small") for n, note in enumerate(notes))


def relative(left: float, colour: str) -> Iterator[str]:
    """RPE: a word sees how far away each other word is."""
    yield text(left + PANEL / 2, 30, "RPE: relative", "title")
    yield boxes(left, 62, WORDS)
    centre = left + QUERY * (BOX + GAP) + BOX / 2
    for number in range(len(WORDS)):
        x, distance = left + number * (BOX + GAP) + BOX / 2, number - QUERY
        label = f"{distance:+d}".replace("-", "−") if distance else "0"
        if distance:
            path = f"M{centre:g},92 Q{(centre + x) / 2:g},{98 + 14 * abs(distance)} {x:g},92"
            yield f'<path d="{path}" class="arc" stroke="{colour}"/>'
        yield box(x - BOX / 2, 122, label, colour)
    for line, note in enumerate(
        ("A learned vector for each distance.", "A shift changes nothing; slower.")
    ):
        yield text(left + PANEL / 2, 182 + 20 * line, note, "small")


def drawing() -> str:
    lefts = [MARGIN + number * (PANEL + 2 * MARGIN) for number in range(3)]
    parts = [
        *absolute(
            lefts[0],
            "APE: absolute",
            ("1", "2", "3", "4", "5"),
            COLOURS["ape"],
            ("Each position has its own vector.", "Untrained positions are unknown."),
        ),
        *relative(lefts[1], COLOURS["rpe"]),
        *absolute(
            lefts[2],
            "SHAPE: shifted absolute",
            ("k+1", "k+2", "k+3", "k+4", "k+5"),
            COLOURS["shape"],
            ("A random k for each training sequence.", "A shift changes little; no slower."),
        ),
    ]
    label = "APE adds positions 1 to 5 to the words, RPE sees distances, SHAPE adds k+1 to k+5."
    return document(WIDTH, TOTAL_HEIGHT, label, parts)


if __name__ == "__main__":
    Path(__file__).with_name("idea.svg").write_text(drawing(), encoding="utf-8")
