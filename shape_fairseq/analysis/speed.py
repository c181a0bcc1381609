"""Table 6: training and generation speed relative to APE, peak memory, parameters."""

from ..command_line import positive
from ..errors import UserError
from ..evaluation import paper
from ..evaluation.results import label_title
from ..evaluation.table import NOT_REPORTED, Table
from ..search import Search
from . import base

NAME = "speed"
EXAMPLE = """ape=runs/demo/checkpoints/extrapolate-ape-seed1/checkpoint_last.pt \\
    shape=runs/demo/checkpoints/extrapolate-shape-k30-seed1/checkpoint_last.pt \\
    --data runs/demo/data --setting extrapolate --turns 3 --out figures"""
BASELINE = "ape"


def plot(result: dict) -> dict:
    """Training speed, generation speed and memory of a step, side by side."""
    from . import figures

    models = result["models"]
    labels = list(models)
    training, generation = (
        [models[label][part]["speed"] for label in labels] for part in ("training", "generation")
    )
    memory = [models[label]["step_memory"] / 1e6 for label in labels]
    panels = {
        "training speed (APE = 1)": (training, "x%.2f"),
        "generation speed (APE = 1)": (generation, "x%.2f"),
        "memory of a training step (MB)": (memory, "%.0f"),
    }
    figure, axes = figures.subplots(1, len(panels), figsize=(9, 0.9 + 0.42 * len(labels)))
    for axis, (title, (values, form)) in zip(axes, panels.items(), strict=True):
        bars = axis.barh(
            [label_title(label) for label in labels],
            values,
            color=[figures.colour(label, labels) for label in labels],
        )
        axis.bar_label(bars, fmt=form, padding=3, fontsize=8)
        axis.set_title(title, loc="left")
        axis.margins(x=0.2)
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    return {NAME: figure}


def table(result: dict) -> Table:
    """Table 6 as far as a few steps can tell, with the paper's speed."""
    rows = []
    for label, model in result["models"].items():
        theirs = paper.TABLE_2.get((result["setting"], label))
        rows.append(
            [
                label_title(label),
                f"{model['training']['seconds'] * 1000:.0f} ms",
                f"x{model['training']['speed']:.2f}",
                NOT_REPORTED if theirs is None else f"x{theirs[-1]:.2f}",
                f"x{model['generation']['speed']:.2f}",
                f"{model['step_memory'] / 1e6:.1f} MB",
                f"{model['parameters']:,}",
            ]
        )
    header = ["Model", "Training step", "Speed", "Paper", "Generation", "Memory", "Parameters"]
    turns = len(next(iter(result["models"].values()))["training"]["turns"])
    note = f"Medians of {turns} turns on {result['device']}; memory of a step beyond the weights."
    return Table(f"Table 6: speed on {result['setting'].upper()}", header, rows, [note])


def main(arguments: list[str]) -> None:
    """Training and generation speed side by side, memory, parameters (table 6)."""
    parser = base.command(NAME, main.__doc__, EXAMPLE)
    base.add_models(parser)
    base.add_setting(parser, "vanilla")
    parser.add_argument(
        "--turns", type=positive, default=15, help="of each model (default: %(default)s)"
    )
    parser.add_argument("--beam", type=positive, default=Search().beam, help="default: %(default)s")
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    models = base.checkpoints(args.models)
    if BASELINE not in models:
        raise UserError("speed is relative to APE: give ape=CHECKPOINT too")
    import torch

    from .compute.models import DataBin, choose_device
    from .compute.speed import compute

    data, device = DataBin(args.data, args.setting), choose_device(args.cpu)
    signature = base.signature(
        args.data,
        models,
        setting=args.setting,
        turns=args.turns,
        beam=args.beam,
        max_tokens=args.max_tokens,
        threads=torch.get_num_threads(),
    )
    result = compute(data, models, args.turns, args.beam, args.max_tokens, device)
    base.publish(args.out, NAME, signature, result, plot(result))
    for label, model in result["models"].items():
        print(
            f"{label_title(label)}: training x{model['training']['speed']:.2f}"
            f" ({model['training']['seconds'] * 1000:.0f} ms a step), generation"
            f" x{model['generation']['speed']:.2f}, {model['step_memory'] / 1e6:.0f} MB a step,"
            f" {model['parameters']:,} parameters"
        )
