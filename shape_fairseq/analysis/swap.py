"""Table 1: how much BLEU of the first sentence is lost when it is moved to the end."""

from ..command_line import positive
from ..data_folder import SWAPPED
from ..evaluation import paper
from ..evaluation.results import label_title
from ..evaluation.table import Table
from ..search import Search
from . import base

NAME = "swap"
EXAMPLE = """ape=runs/demo/checkpoints/interpolate-ape-seed1/checkpoint_last.pt \\
    shape=runs/demo/checkpoints/interpolate-shape-k40-seed1/checkpoint_last.pt \\
    --data runs/demo/data --sequences 20 --out figures"""


def plot(result: dict) -> dict:
    """Both orders side by side for each model, with the drop above."""
    from . import figures

    labels = list(result["models"])
    figure, axis = figures.subplots(figsize=(1.6 + 1.5 * len(labels), 3))
    for place, label in enumerate(labels):
        colour = figures.colour(label, labels)
        scores = result["models"][label]["bleu"]
        for shift, (order, score) in zip((-0.2, 0.2), scores.items(), strict=True):
            opacity = 1.0 if order == "original" else 0.55
            bars = axis.bar(place + shift, score, 0.37, color=colour, alpha=opacity)
            axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
            axis.text(
                place + shift,
                -0.02,
                order,
                ha="center",
                va="top",
                fontsize=7.5,
                transform=axis.get_xaxis_transform(),
            )
    axis.set_xticks(
        range(len(labels)),
        # + 0.0: no drop is not written as "-0.0".
        [
            f"\n{label_title(name)}: drop {round(result['models'][name]['drop'], 1) + 0.0}"
            for name in labels
        ],
        fontweight="bold",
    )
    axis.tick_params(axis="x", length=0)
    axis.set_ylabel("BLEU of $Y_1'$")
    axis.margins(y=0.12)
    axis.set_title(f"First sentence in place and moved to the end, {result['sequences']:,} seq.")
    return {NAME: figure}


def table(result: dict) -> Table:
    """Table 1, with the paper's numbers where it has some."""
    rows = []
    for label, model in result["models"].items():
        ours = (*model["bleu"].values(), model["drop"])
        for source, numbers in (("ours", ours), ("paper", paper.TABLE_1.get(label))):
            if numbers:
                rows.append([label_title(label), source, *(f"{score:.2f}" for score in numbers)])
    counts = "; ".join(
        f"{label_title(label)} {model['separators']['swapped']['missing']}"
        for label, model in result["models"].items()
    )
    expected = next(iter(result["models"].values()))["separators"]["swapped"]["expected"]
    return Table(
        f"Table 1: BLEU of the first sentence on {result['sequences']:,} training sequences",
        ["Model", "Source", "Original", "Swapped", "Drop"],
        rows,
        [f"<sep> missing in the swapped order, of {expected:,}: {counts}."],
    )


def main(arguments: list[str]) -> None:
    """BLEU of the first sentence in original and in swapped order (table 1)."""
    parser = base.command(NAME, main.__doc__, EXAMPLE)
    base.add_models(parser)
    parser.add_argument(
        "--sequences", type=positive, default=10_000, help="of DATA/swapped (default: 10000)"
    )
    Search.add_options(parser)
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    models, search = base.checkpoints(args.models), Search.from_options(args)
    from .compute.models import DataBin, choose_device
    from .compute.swap import compute

    data, device = DataBin(args.data, SWAPPED), choose_device(args.cpu)
    signature = base.signature(args.data, models, sequences=args.sequences, **vars(search))
    result = compute(data, models, args.sequences, search, args.max_tokens, device)
    base.publish(args.out, NAME, signature, result, plot(result))
    for label, model in result["models"].items():
        original, swapped = model["bleu"]["original"], model["bleu"]["swapped"]
        print(
            f"{label_title(label)}: BLEU {original:.2f} original, {swapped:.2f} swapped,"
            f" drop {model['drop']:.2f}"
        )
