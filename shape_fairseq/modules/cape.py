"""CAPE: sinusoidal positions at real places, shifted and scaled at random while training."""

from math import log

import torch
from torch import Tensor

from ..compat import sinusoidal_table
from .positions import TrainingPositionalEmbedding, rank_generator


def augmented_positions(
    positions: Tensor,  # batch x length, real numbers
    max_global_shift: float,
    max_local_shift: float,
    max_global_scale: float,
    generator: torch.Generator,
) -> Tensor:
    """(p + shift + local shift) * scale; the local shift is drawn for each token, batch x length.

    Both shifts are uniform in [-max, max], and so is the logarithm of the scale in ± log(max).
    """
    shape, one_each = positions.shape, (len(positions), 1)

    def uniform(shape: tuple[int, ...], limit: float) -> Tensor:
        drawn = torch.rand(
            shape, generator=generator, dtype=positions.dtype, device=positions.device
        )
        return (2 * drawn - 1) * limit

    shift = uniform(one_each, max_global_shift) + uniform(shape, max_local_shift)
    return (positions + shift) * uniform(one_each, log(max_global_scale)).exp()


class CAPESinusoidalPositionalEmbedding(TrainingPositionalEmbedding):
    """Likhomanenko et al. (2021); the order of the three draws is that of the paper's code.

    That code also offers to count positions from the middle of a sequence. For text it does not:
    a decoder cannot know where the middle will be. Outside training nothing is drawn, and the
    positions are 0, 1, ..., so the model is fairseq's own. What the paper's translation models do
    beyond that, to stretch source positions by the ratio of both languages' lengths, is left out:
    no fairseq without this extension could use such a model.
    """

    def __init__(
        self,
        embedding_dim: int,
        padding_idx: int,
        init_size: int,
        max_global_shift: float = 0.0,
        max_local_shift: float = 0.0,
        max_global_scale: float = 1.0,
    ):
        super().__init__(embedding_dim, padding_idx, init_size)
        self.maxima = (max_global_shift, max_local_shift, max_global_scale)

    def draw(self, positions: Tensor, lengths: Tensor) -> Tensor | None:
        if self.maxima == (0, 0, 1):
            return None
        # In half precision neighbouring positions would soon be one and the same.
        precise = positions.to(torch.promote_types(sinusoidal_table(self, 0).dtype, torch.float32))
        return augmented_positions(precise, *self.maxima, rank_generator(positions.device))
