"""Figure 2 and appendix C: do the encoder's states change when all positions are shifted?"""

from ..command_line import positive
from ..errors import UserError
from ..evaluation.results import label_title
from . import base

NAME = "similarity"
EXAMPLE = """ape=runs/demo/checkpoints/interpolate-ape-seed1/checkpoint_last.pt \\
    shape=runs/demo/checkpoints/interpolate-shape-k40-seed1/checkpoint_last.pt \\
    --data runs/demo/data --offsets 0 10 20 40 --out figures"""
PAPERS_OFFSETS = (0, 100, 250, 500)
IN_A_ROW = 5  # sequences in the figure of appendix C


def _matrices(rows: list[tuple[str, dict]], offsets: list[int]):
    """Rows of similarity matrices: a model's label, and its matrices by their titles."""
    from . import figures

    columns = max(len(panels) for _, panels in rows)
    size = (0.9 + 1.65 * columns, 0.3 + 1.95 * len(rows))
    figure, axes = figures.subplots(len(rows), columns, figsize=size, squeeze=False)
    for line, (label, panels) in zip(axes, rows, strict=True):
        for axis, (title, matrix) in zip(line, panels.items(), strict=False):
            texts = [[f"{value:.2f}" for value in values] for values in matrix]
            mesh = figures.heat_map(axis, matrix, texts, cmap="viridis", vmin=0, vmax=1)
            axis.set_aspect("equal")
            axis.invert_yaxis()
            axis.set_title(title)
            axis.set_xticklabels(offsets, fontsize=7)
            axis.set_yticklabels(offsets if axis is line[0] else [], fontsize=7)
        for axis in line[len(panels) :]:
            axis.set_axis_off()
        line[0].set_ylabel(f"{label_title(label)}\noffset $k_1$", fontweight="bold")
    axes[-1][0].set_xlabel("offset $k_2$")
    figure.colorbar(mesh, ax=axes, label="cosine similarity", shrink=0.8, pad=0.01)
    return figure


def plot(result: dict) -> dict:
    """Figure 2 by layer, averaged over the sequences; appendix C by sequence, last layer."""
    models, offsets = result["models"], result["offsets"]
    by_layer = [
        (label, {f"layer {n}" if n else "embeddings": m for n, m in enumerate(model["layers"])})
        for label, model in models.items()
    ]
    numbers = result["sequence_ids"]
    by_sequence = [
        (label, {f"#{numbers[n]}": model["sequences"][n][-1] for n in range(*part)})
        for part in (
            (start, min(start + IN_A_ROW, len(numbers)))
            for start in range(0, len(numbers), IN_A_ROW)
        )
        for label, model in models.items()
    ]
    return {
        NAME: _matrices(by_layer, offsets),
        f"{NAME}-sequences": _matrices(by_sequence, offsets),
    }


def main(arguments: list[str]) -> None:
    """Cosine similarity of encoder states under shifted positions (figure 2, appendix C)."""
    parser = base.command(NAME, main.__doc__, EXAMPLE)
    base.add_models(parser)
    base.add_subset(parser, setting="interpolate")
    parser.add_argument("--sequences", type=positive, default=10, help="default: 10")
    parser.add_argument(
        "--offsets",
        type=base.offset,
        nargs="+",
        default=list(PAPERS_OFFSETS),
        metavar="N",
        help="default: the paper's; the models come before this option, or after another one",
    )
    args = parser.parse_args(arguments)
    offsets = sorted(set(args.offsets))
    if len(offsets) < 2:
        raise UserError("--offsets needs at least two different numbers from 0 on")
    base.check_new(args.out, NAME)
    models = base.checkpoints(args.models)
    from .compute.models import DataBin, choose_device
    from .compute.similarity import compute

    data = DataBin(args.data, args.setting)
    signature = base.signature(
        args.data,
        models,
        setting=args.setting,
        subset=args.subset,
        sequences=args.sequences,
        offsets=args.offsets,
    )
    device = choose_device(args.cpu)
    result = compute(data, args.subset, models, args.sequences, offsets, device)
    base.publish(args.out, NAME, signature, result, plot(result))
    for label, model in result["models"].items():
        print(
            f"{label_title(label)}: cosine {model['mean']:.3f} on average between offsets,"
            f" {model['min']:.3f} at least (last layer)"
        )
