"""Sinusoidal positions of which only those of a training batch change, and SHAPE, the first such.

SHAPE, CAPE and randomized positions differ in where the tokens of a training sequence stand. All
else is theirs in common: each sequence, source and target, rank and update draws anew; a resumed
training repeats the draws; and outside training the model is fairseq's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import log

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn

from ..compat import sinusoidal_table
from ..errors import OptionError


def rank_generator(device: torch.device) -> torch.Generator:
    """A generator of random numbers for one batch of one rank.

    fairseq seeds torch with the update number before each update, alike on all ranks. One draw
    from that generator makes a resumed run repeat its draws; the rank makes them differ.
    """
    seed = int(torch.randint(2**31, (), device="cpu"))  # on the CPU: no host sync
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    # The CPU's generator uses 32 bits of its seed; the factor spreads neighbouring ranks over them.
    return torch.Generator(device).manual_seed((seed + rank * 0x9E3779B1) % 2**32)


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    """fairseq's sinusoidal vectors at real positions, those of its table where these are whole."""
    half = dim // 2
    steps = torch.arange(half, dtype=positions.dtype, device=positions.device)
    frequencies = torch.exp(steps * -(log(10000) / (half - 1)))
    angles = positions.unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # ... x dim


class TrainingPositionalEmbedding(SinusoidalPositionalEmbedding):
    """fairseq's sinusoidal positions; a subclass says where the tokens of a training batch stand.

    With a fixed `offset` all positions outside training are shifted by it, for the analyses.
    Incremental decoding sees one token at a time and never draws.
    """

    offset = 0

    @classmethod
    def like(cls, stock: SinusoidalPositionalEmbedding, *options):
        """An embedding of the same size, device and dtype as fairseq's own `stock`."""
        table = sinusoidal_table(stock, rows=0)
        ours = cls(stock.embedding_dim, stock.padding_idx, table.size(0), *options)
        return ours.to(table).train(stock.training)

    def draw(self, positions: Tensor, lengths: Tensor) -> Tensor | None:
        """New places for the tokens at `positions` 0, 1, ... (batch x length; -1 is padding).

        Whole numbers are looked up in fairseq's table, real ones computed; None changes nothing.
        `lengths` (batch x 1) counts the tokens without padding.
        """
        return None

    def reach(self, length: int) -> int:
        """How many whole positions a training sequence of this length is spread over."""
        return length

    def forward(self, input, incremental_state=None, timestep=None, positions=None):
        """Position vectors of `input` (batch, length): (batch, length, dim), zero for padding."""
        if incremental_state is None and (self.training or self.offset):
            # batch x length, padding is -1
            usual = make_positions(input, self.padding_idx) - (self.padding_idx + 1)
            if self.training:
                places = self.draw(usual, usual.ge(0).sum(dim=1, keepdim=True))
                if places is not None:
                    return self._vectors(usual, places, self.reach(input.size(1)))
            if self.offset:
                return self._vectors(usual, usual + self.offset, input.size(1) + self.offset)
        if self.offset == 0:
            return super().forward(input, incremental_state, timestep, positions)
        sinusoidal_table(self, self.padding_idx + 1 + input.size(1) + self.offset)
        step = input.size(1) - 1 if timestep is None else timestep
        return super().forward(input, incremental_state, torch.as_tensor(step + self.offset))

    def _vectors(self, usual: Tensor, places: Tensor, reach: int) -> Tensor:
        """The vectors at `places`, batch x length x dim; padding keeps its own, zero, row."""
        first = self.padding_idx + 1
        table = sinusoidal_table(self, first + reach)
        real = usual.ge(0)
        if places.is_floating_point():
            vectors = sinusoids(places + first, self.embedding_dim).type_as(table)
            return vectors * real.unsqueeze(-1)
        rows = torch.where(real, places + first, self.padding_idx)
        return table.index_select(0, rows.view(-1)).view(*rows.shape, -1).detach()


def draw_offsets(batch_size: int, max_shift: int, device: torch.device) -> Tensor:
    """One offset k ~ U{0, ..., max_shift} for each sequence, of shape (batch, 1)."""
    shape = (batch_size, 1)
    return torch.randint(max_shift + 1, shape, generator=rank_generator(device), device=device)


class ShiftedSinusoidalPositionalEmbedding(TrainingPositionalEmbedding):
    """SHAPE: while training all positions of a sequence are shifted by one random offset.

    With `max_shift` 0 every call is fairseq's own. The largest offset may grow linearly to
    `max_shift` over the first `warmup_updates` updates.
    """

    def __init__(
        self,
        embedding_dim: int,
        padding_idx: int,
        init_size: int,
        max_shift: int = 0,
        warmup_updates: int = 0,
    ):
        super().__init__(embedding_dim, padding_idx, init_size + max_shift)
        self.max_shift = max_shift
        self.warmup_updates = warmup_updates
        self.num_updates = 0

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before every update, a resumed training's too."""
        self.num_updates = num_updates

    def largest_shift(self) -> int:
        """The K of this update."""
        if self.num_updates >= self.warmup_updates:
            return self.max_shift
        return self.max_shift * self.num_updates // self.warmup_updates

    def draw(self, positions: Tensor, lengths: Tensor) -> Tensor | None:
        largest = self.largest_shift()
        if largest == 0:
            return None
        return positions + draw_offsets(len(positions), largest, positions.device)

    def reach(self, length: int) -> int:
        return length + self.max_shift


@contextmanager
def position_offset(model: nn.Module, encoder: int = 0, decoder: int = 0) -> Iterator[nn.Module]:
    """Evaluate a model that has fairseq's positions with all of them shifted by fixed offsets.

    >>> with position_offset(model, encoder=100):
    ...     states = model.encoder(tokens, lengths)
    """
    sides = [(model.encoder, encoder), (model.decoder, decoder)]
    before = [side.embed_positions for side, _ in sides]
    for side, offset in sides:
        if not isinstance(side.embed_positions, SinusoidalPositionalEmbedding):
            raise OptionError(f"{type(side).__name__} has no sinusoidal positions to shift")
        if offset < 0:
            raise OptionError(f"an offset must not be negative, got {offset}")
    try:
        for side, offset in sides:
            side.embed_positions = TrainingPositionalEmbedding.like(side.embed_positions)
            side.embed_positions.offset = offset
        yield model
    finally:
        for (side, _), embedding in zip(sides, before, strict=True):
            side.embed_positions = embedding
