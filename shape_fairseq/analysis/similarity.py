"""Figure 2 and appendix C: do the encoder's states change when all positions are shifted?"""

import statistics
from pathlib import Path

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from tqdm import tqdm

from ..command_line import positive
from ..errors import UserError
from ..modules.positions import position_offset
from . import base, figures
from .compute.models import DataBin, device, load_for_inference, log, spread

NAME = "similarity"
PAPERS_OFFSETS = (0, 100, 250, 500)
IN_A_ROW = 5  # sequences in the figure of appendix C


def layer_states(model, tokens: torch.Tensor, offset: int) -> torch.Tensor:
    """The input and the output of every encoder layer: (1 + layers) x length x dim."""
    lengths = tokens.new_tensor([tokens.size(1)])
    with torch.no_grad(), position_offset(model, encoder=offset):
        encoded = model.encoder(tokens, lengths, return_all_hiddens=True)
    return torch.stack([states[:, 0] for states in encoded["encoder_states"]])


def pairwise(model, tokens: torch.Tensor, offsets: list[int]) -> list[list[list[float]]]:
    """For every layer the cosine of each two offsets, averaged over the positions."""
    states = torch.stack([layer_states(model, tokens, offset) for offset in offsets])
    unit = torch.nn.functional.normalize(states.float(), dim=-1)  # offset x layer x length x dim
    cosines = torch.einsum("alid,blid->labi", unit, unit)
    return cosines.mean(-1).tolist()


def mean_matrix(matrices: list) -> list:
    return torch.tensor(matrices).mean(0).tolist()


def between_offsets(matrix: list[list[float]]) -> list[float]:
    """The entries of two different offsets."""
    return [value for row, values in enumerate(matrix) for value in values[row + 1 :]]


def compute(
    data: DataBin,
    subset: str,
    models: dict[str, Path],
    sequences: int,
    offsets: list[int],
    where: torch.device,
) -> dict:
    """The similarity matrices of every layer, for each sequence and on average."""
    dataset = data.subset(subset)
    indices = spread(len(dataset), sequences)
    found = {}
    for label, path in models.items():
        model = load_for_inference(path, data, where)
        if not isinstance(model.encoder.embed_positions, SinusoidalPositionalEmbedding):
            log.info("%s has no absolute positions to shift: left out", figures.title(label))
            continue
        matrices = [
            pairwise(model, dataset[index]["source"].unsqueeze(0).to(where), offsets)
            for index in tqdm(indices, desc=label, unit="seq", disable=None, leave=False)
        ]
        layers = mean_matrix(matrices)
        found[label] = {
            "layers": layers,
            "sequences": matrices,
            "mean": statistics.fmean(between_offsets(layers[-1])),
            "min": min(value for one in matrices for value in between_offsets(one[-1])),
        }
    if not found:
        raise UserError("none of the models has absolute positions: give ape= or shape=")
    return {
        "offsets": offsets,
        "sequence_ids": indices,
        "sequence_lengths": [int(dataset.src_sizes[index]) for index in indices],
        "models": found,
    }


def _matrices(rows: list[tuple[str, dict]], offsets: list[int]):
    """Rows of similarity matrices: a model's label, and its matrices by their titles."""
    columns = max(len(panels) for _, panels in rows)
    figure, axes = figures.subplots(
        *(len(rows), columns), figsize=(0.9 + 1.65 * columns, 0.3 + 1.95 * len(rows)), squeeze=False
    )
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
        line[0].set_ylabel(f"{figures.title(label)}\noffset $k_1$", fontweight="bold")
    axes[-1][0].set_xlabel("offset $k_2$")
    figure.colorbar(mesh, ax=axes, label="cosine similarity", shrink=0.8, pad=0.01)
    return figure


def plot(result: dict) -> dict:
    """Figure 2 by layer, averaged over the sequences; appendix C by sequence, last layer."""
    models, offsets = result["models"], result["offsets"]
    by_layer = [
        (label, {f"layer {n}" if n else "embeddings": one for n, one in enumerate(found["layers"])})
        for label, found in models.items()
    ]
    numbers = result["sequence_ids"]
    by_sequence = [
        (label, {f"#{numbers[n]}": found["sequences"][n][-1] for n in range(*part)})
        for part in (
            (start, min(start + IN_A_ROW, len(numbers)))
            for start in range(0, len(numbers), IN_A_ROW)
        )
        for label, found in models.items()
    ]
    return {
        NAME: _matrices(by_layer, offsets),
        f"{NAME}-sequences": _matrices(by_sequence, offsets),
    }


def main(arguments: list[str]) -> None:
    """Cosine similarity of encoder states under shifted positions (figure 2, appendix C)."""
    parser = base.command(NAME, main.__doc__)
    base.add_models(parser)
    base.add_subset(parser, setting="interpolate")
    parser.add_argument("--sequences", type=positive, default=10, help="default: 10")
    parser.add_argument(
        "--offsets", type=int, nargs="+", default=list(PAPERS_OFFSETS), help="default: the paper's"
    )
    args = parser.parse_args(arguments)
    if len(set(args.offsets)) < 2 or min(args.offsets) < 0:
        raise UserError("--offsets needs at least two different numbers from 0 on")
    base.check_new(args.out, NAME)
    models = base.checkpoints(args.models)
    data = DataBin(args.data, args.setting)
    signed = base.signature(
        *(args.data, models),
        **{"setting": args.setting, "subset": args.subset, "sequences": args.sequences},
        offsets=args.offsets,
    )
    offsets = sorted(set(args.offsets))
    result = compute(data, args.subset, models, args.sequences, offsets, device(args.cpu))
    base.publish(args.out, NAME, signed, result, plot(result))
    for label, found in result["models"].items():
        print(
            f"{figures.title(label)}: cosine {found['mean']:.3f} on average between offsets,"
            f" {found['min']:.3f} at least (last layer)"
        )
