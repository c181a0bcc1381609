"""Figure 4: where does the second model give gold tokens a higher probability than the first?"""

from ..command_line import positive
from ..errors import UserError
from ..evaluation.results import label_title
from . import base

NAME = "token-scores"
EXAMPLE = """ape=runs/demo/checkpoints/extrapolate-ape-seed1/checkpoint_last.pt \\
    shape=runs/demo/checkpoints/extrapolate-shape-k30-seed1/checkpoint_last.pt \\
    --data runs/demo/data --out figures"""


def plot(result: dict) -> dict:
    """The heat map of figure 4 with the number of tokens in every cell."""
    from . import figures

    baseline, compared = map(label_title, result["models"])
    cells, columns = result["cells"], len(result["positions"])
    figure, axis = figures.subplots(
        figsize=(max(5.5, 1.6 + 0.72 * columns), 1.4 + 0.48 * len(cells))
    )
    values = [[cell["ratio"] for cell in row] for row in cells]
    texts = [
        [f"{cell['ratio']:.2f}\nn={cell['tokens']}" if cell["tokens"] else "–" for cell in row]
        for row in cells
    ]
    mesh = figures.heat_map(axis, values, texts, cmap="PuOr_r", vmin=0, vmax=1)
    if any(result["untrained_positions"]):
        untrained = result["untrained_positions"].index(True)
        axis.axvline(untrained, color="#333333", linewidth=1.4)
        axis.text(
            untrained + 0.08,
            1.01,
            "no training data →",
            transform=axis.get_xaxis_transform(),
            fontsize=7.5,
            color="#555555",
        )
    axis.set_xticklabels(result["positions"], fontsize=7, rotation=35, ha="right")
    axis.set_yticklabels(result["frequencies"], fontsize=7)
    axis.set_xlabel("position in the target")
    axis.set_ylabel("times in training data")
    name = (
        f"{result['setting'].upper()}: where {compared} scores gold tokens higher than {baseline}"
    )
    axis.set_title(name, pad=16)
    figure.colorbar(mesh, ax=axis, label="ratio of tokens", pad=0.01)
    return {NAME: figure}


def main(arguments: list[str]) -> None:
    """Teacher-forced scores of gold tokens under two models (figure 4)."""
    parser = base.command(NAME, main.__doc__, EXAMPLE)
    base.add_models(parser)
    base.add_subset(parser, setting="extrapolate")
    parser.add_argument(
        "--trained-length",
        type=positive,
        metavar="N",
        help="positions beyond it are marked (default: the limit of EXTRAPOLATE)",
    )
    parser.add_argument("--width", type=positive, help="of a bucket of positions")
    args = parser.parse_args(arguments)
    models = base.checkpoints(args.models)
    if len(models) != 2:
        raise UserError(f"two models are compared, ape=FILE shape=FILE; {len(models)} given")
    base.check_new(args.out, NAME)
    from .compute.models import DataBin, choose_device
    from .compute.token_scores import compute

    data, device = DataBin(args.data, args.setting), choose_device(args.cpu)
    trained = args.trained_length or base.trained_length(args.data, args.setting)
    signature = base.signature(
        args.data,
        models,
        setting=args.setting,
        subset=args.subset,
        trained_length=trained,
        width=args.width,
    )
    result = compute(data, args.subset, models, trained, args.max_tokens, device, args.width)
    base.publish(args.out, NAME, signature, result, plot(result))
    baseline, compared = map(label_title, result["models"])
    places = {"all": "gold tokens"}
    if trained is not None:
        places |= {"trained": "at trained positions", "untrained": "beyond trained positions"}
    for part, place in places.items():
        if (tally := result[part])["tokens"]:
            print(
                f"{compared} scores {tally['ratio']:.1%} of {tally['tokens']:,} {place} higher"
                f" than {baseline}"
            )
