"""Encoder states under shifted positions, and how much they change."""

import statistics
from pathlib import Path

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from tqdm import tqdm

from ...errors import UserError
from ...evaluation.results import label_title
from ...modules.positions import position_offset
from .models import DataBin, load_for_inference, log, spread


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
    device: torch.device,
) -> dict:
    """The similarity matrices of every layer, for each sequence and on average."""
    dataset = data.subset(subset)
    indices = spread(len(dataset), sequences)
    similarities = {}
    for label, path in models.items():
        model = load_for_inference(path, data, device)
        if not isinstance(model.encoder.embed_positions, SinusoidalPositionalEmbedding):
            log.info("%s has no absolute positions to shift: left out", label_title(label))
            continue
        matrices = [
            pairwise(model, dataset[index]["source"].unsqueeze(0).to(device), offsets)
            for index in tqdm(indices, desc=label, unit="seq", disable=None, leave=False)
        ]
        layers = mean_matrix(matrices)
        similarities[label] = {
            "layers": layers,
            "sequences": matrices,
            "mean": statistics.fmean(between_offsets(layers[-1])),
            "min": min(value for layers in matrices for value in between_offsets(layers[-1])),
        }
    if not similarities:
        raise UserError("none of the models has absolute positions: give ape= or shape=")
    return {
        "offsets": offsets,
        "sequence_ids": indices,
        "sequence_lengths": [int(dataset.src_sizes[index]) for index in indices],
        "models": similarities,
    }
