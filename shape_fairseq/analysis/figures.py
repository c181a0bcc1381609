"""One look for all figures: the same colour for the same model everywhere."""

import logging
from itertools import cycle

from ..errors import UserError
from ..model_names import MODELS

try:
    # A module of fairseq shows everybody's debug messages, and matplotlib has some at its start.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    import matplotlib
except ImportError as error:
    raise UserError("figures need matplotlib: pip install 'shape-fairseq[analysis]'") from error
matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator  # noqa: F401 - for the analyses

# Okabe and Ito's colours, which people with any colour vision can tell apart, with wine for yellow.
PALETTE = ["#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#009E73", "#56B4E9", "#000000", "#882255"]
COLOURS = dict(zip(MODELS, cycle(PALETTE), strict=False))
MARKERS = dict(zip(MODELS, cycle("osDv^PX*h"), strict=False))
UNTRAINED = "#e4e4e4"
EMPTY = "#f4f4f4"

STYLE = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.prop_cycle": plt.cycler(color=["#6b7280"]),  # of what is no model
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 4,
    "svg.hashsalt": "shape-fairseq",
}
plt.rcParams.update(STYLE)


def colour(label: str, labels: list[str]) -> str:
    """The model's colour; a second variant of a model gets one that no model here has."""
    first: dict[str, str] = {}
    for name in labels:
        first.setdefault(name.partition("-")[0], name)
    own = {name: COLOURS[model] for model, name in first.items() if model in COLOURS}
    if label in own:
        return own[label]
    free = [colour for colour in PALETTE if colour not in own.values()] or PALETTE
    others = [name for name in labels if name not in own]
    return free[others.index(label) % len(free)]


def marker(label: str) -> str:
    return MARKERS.get(label.partition("-")[0], "D")


def heat_map(axis, values: list[list[float | None]], texts: list[list[str]], **colours) -> object:
    """Cells with their text; a cell without a value stays empty."""
    rows, columns = len(values), len(values[0])
    numbers = [[float("nan") if value is None else value for value in row] for row in values]
    axis.set_facecolor(EMPTY)
    mesh = axis.pcolormesh(numbers, edgecolors="white", linewidth=0.8, **colours)
    for y in range(rows):
        for x in range(columns):
            light = values[y][x] is None or _is_light(mesh.to_rgba(values[y][x]))
            axis.text(
                x + 0.5,
                y + 0.5,
                texts[y][x],
                ha="center",
                va="center",
                color="#222222" if light else "white",
                fontsize=6.5,
                linespacing=1.1,
            )
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.set_xticks([column + 0.5 for column in range(columns)])
    axis.set_yticks([row + 0.5 for row in range(rows)])
    return mesh


def _is_light(rgba: tuple[float, ...]) -> bool:
    red, green, blue, _ = rgba
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55


def subplots(*arguments, **options):
    return plt.subplots(*arguments, **options)
