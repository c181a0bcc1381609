"""Draw docs/house.svg: the rooms of the project, and the way of a sentence pair through them.

python docs/draw_house.py
"""

from collections.abc import Iterator
from pathlib import Path

from draw_idea import COLOURS, document, text

WIDTH, HEIGHT = 976, 424
ROOM, GAP, LEFT = 166, 64, 60  # width of a room, space for an arrow, start of the first room
TOP, TALL = 118, 92  # of the rooms in the middle
LOWER = TOP + TALL + 34
ROOMS = (
    ("data_prep/", ("clean, tokenize, BPE,", "make the three settings")),
    ("models/, modules/", ("what fairseq-train", "loads: SHAPE, RPE, …")),
    ("evaluation/", ("average, translate,", "score with sacreBLEU")),
    ("analysis/", ("the paper's figures,", "claims and the report")),
)
PASSED_ON = ("data-bin", "model", "results")


def room(left: float, top: float, width: float, height: float, name: str, lines: tuple) -> str:
    centre = left + width / 2
    shape = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" class="word"/>'
    words = [text(centre, top + 30, name, "name")]
    words += [text(centre, top + 54 + 20 * n, line, "small") for n, line in enumerate(lines)]
    return shape + "".join(words)


def arrow(*points: tuple[float, float], colour: str = "") -> str:
    """A line with a tip at its end, which goes to the right or down."""
    path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
    (x0, y0), (x, y) = points[-2:]
    ends = ((-9, -5), (-9, 5)) if y == y0 else ((-5, -9), (5, -9))
    tip = f"{x:g},{y:g} " + " ".join(f"{x + dx:g},{y + dy:g}" for dx, dy in ends)
    line, fill = (f' style="{name}: {colour}"' if colour else "" for name in ("stroke", "fill"))
    return f'<path d="{path}" class="line"{line}/><polygon points="{tip}" class="tip"{fill}/>'


def way(number: int) -> float:
    """Where a room of the middle row begins."""
    return LEFT + number * (ROOM + GAP)


def parts() -> Iterator[str]:
    data, end = COLOURS["shape"], way(3) + ROOM
    roof = f"{LEFT - 16},86 {LEFT + 110},16 {end - 110},16 {end + 16},86"
    yield f'<polygon points="{roof}" class="word"/>'
    yield text(WIDTH / 2, 44, "recipes/, experiment/", "title")
    yield text(
        WIDTH / 2, 68, "what people start; it starts the rooms below, here or on SLURM", "small"
    )
    middle = TOP + TALL / 2
    for number, (name, lines) in enumerate(ROOMS):
        yield room(way(number), TOP, ROOM, TALL, name, lines)
        if number < len(PASSED_ON):
            yield arrow((way(number) + ROOM, middle), (way(number + 1) - 2, middle), colour=data)
            yield text(way(number) + ROOM + GAP / 2 - 3, middle - 10, PASSED_ON[number], "small")
    yield arrow((4, middle), (LEFT - 2, middle), colour=data)
    yield text(LEFT - 31, middle - 10, "raw text", "small")
    yield arrow((end, middle), (WIDTH - 4, middle), colour=data)
    yield text((end + WIDTH) / 2, middle - 10, "report", "small")
    # The second way of a model: to those who translate with it.
    x, y = way(1) + ROOM / 2, LOWER + TALL / 2
    yield arrow((x, TOP + TALL), (x, y), (way(2) - 2, y), colour=data)
    yield text((x + way(2)) / 2, y - 10, "model", "small")
    yield room(
        way(2), LOWER, ROOM, TALL, "production/", ("export to stock fairseq", "and CTranslate2")
    )
    yield arrow((way(2) + ROOM, y), (way(3) - 2, y), colour=data)
    yield text(way(3) + 42, y + 5, "translations", "small")
    base = LOWER + TALL + 20
    size = f'width="{end - LEFT + 32}" height="56"'
    yield f'<rect x="{LEFT - 16}" y="{base}" {size} rx="8" class="word"/>'
    yield text(
        WIDTH / 2, base + 24, "text/, checkpoints, compat, data_folder, model_names", "title"
    )
    yield text(
        WIDTH / 2,
        base + 45,
        "shared by the rooms above; below them only errors, files and parallel",
        "small",
    )


def drawing() -> str:
    label = (
        "Raw text goes through data_prep, models, evaluation and analysis to the report; a model"
        " goes through production to translations. recipes and experiment start all of it."
    )
    return document(WIDTH, HEIGHT, label, parts())


if __name__ == "__main__":
    Path(__file__).with_name("house.svg").write_text(drawing(), encoding="utf-8")
