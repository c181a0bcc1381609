"""Randomized positions: a training sequence stands at a random, ordered subset of a range."""

import torch
from torch import Tensor

from .positions import TrainingPositionalEmbedding, rank_generator


def ordered_subsets(
    lengths: Tensor,  # batch x 1
    longest: int,
    position_range: int,
    generator: torch.Generator,
) -> Tensor:
    """For each sequence as many of 0 ... position_range - 1 as it is long, drawn without
    replacement and sorted: batch x longest. What is beyond a sequence's length has no meaning.
    """
    shape, device = (len(lengths), position_range), lengths.device
    keys = torch.rand(shape, generator=generator, device=device)
    drawn = keys.topk(longest, dim=1, sorted=True).indices  # in random order
    beyond = torch.arange(longest, device=device) >= lengths
    return drawn.masked_fill(beyond, position_range).sort(dim=1).values


class RandomizedSinusoidalPositionalEmbedding(TrainingPositionalEmbedding):
    """Ruoss et al. (2023), on fairseq's sinusoidal positions; each sequence has a draw of its own.

    The authors draw positions at test time too. A translation is to be the same every time, and its
    length is not known while it is made, so here positions outside training are fairseq's own, 0,
    1, ...: a subset that is as likely as any other and unlike most. That has its price: after a
    short training on the demo corpus the perplexity was 15 with them and 7 with drawn ones.

    A batch longer than the range keeps its usual positions.
    """

    def __init__(self, embedding_dim: int, padding_idx: int, init_size: int, position_range: int):
        super().__init__(embedding_dim, padding_idx, max(init_size, position_range))
        self.position_range = position_range

    def draw(self, positions: Tensor, lengths: Tensor) -> Tensor | None:
        longest = positions.size(1)
        if longest > self.position_range:
            return None
        generator = rank_generator(positions.device)
        places = ordered_subsets(lengths, longest, self.position_range, generator)
        return places.gather(1, positions.clamp(min=0))

    def reach(self, length: int) -> int:
        return max(length, self.position_range)
