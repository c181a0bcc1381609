"""SHAPE: sinusoidal positions, shifted by a random offset for each sequence while training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn

from ..compat import sinusoidal_table
from ..errors import OptionError


def draw_offsets(batch_size: int, max_shift: int, device: torch.device) -> Tensor:
    """One offset k ~ U{0, ..., max_shift} for each sequence, of shape (batch, 1).

    fairseq seeds torch with the update number before each update, alike on all ranks. One draw
    from that generator makes a resumed run repeat the offsets; the rank makes them differ.
    """
    seed = int(torch.randint(2**31, (), device="cpu"))  # on the CPU: no host sync
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    # The CPU's generator uses 32 bits of its seed; the factor spreads neighbouring ranks over them.
    generator = torch.Generator(device).manual_seed((seed + rank * 0x9E3779B1) % 2**32)
    return torch.randint(max_shift + 1, (batch_size, 1), generator=generator, device=device)


class ShiftedSinusoidalPositionalEmbedding(SinusoidalPositionalEmbedding):
    """fairseq's sinusoidal positions, with a random shift in training and a fixed one otherwise.

    With `max_shift` 0 and `offset` 0 every call is the parent's. Incremental decoding sees one
    token at a time and so always uses the fixed offset.
    """

    def __init__(self, embedding_dim: int, padding_idx: int, init_size: int, max_shift: int = 0):
        super().__init__(embedding_dim, padding_idx, init_size + max_shift)
        self.max_shift = max_shift
        self.offset = 0

    @classmethod
    def like(cls, stock: SinusoidalPositionalEmbedding, max_shift: int = 0):
        """A shifted embedding of the same size, device and dtype as fairseq's own `stock`."""
        table = sinusoidal_table(stock, rows=0)
        shifted = cls(stock.embedding_dim, stock.padding_idx, table.size(0), max_shift)
        return shifted.to(table).train(stock.training)

    def forward(self, input, incremental_state=None, timestep=None, positions=None):
        """Position vectors of `input` (batch, length): (batch, length, dim), zero for padding."""
        if self.training and self.max_shift > 0 and incremental_state is None:
            offsets = draw_offsets(input.size(0), self.max_shift, input.device)
            return self._shifted(input, offsets, largest=self.max_shift)
        if self.offset == 0:
            return super().forward(input, incremental_state, timestep, positions)
        if incremental_state is None:
            return self._shifted(input, self.offset, largest=self.offset)
        sinusoidal_table(self, self.padding_idx + 1 + input.size(1) + self.offset)
        step = input.size(1) - 1 if timestep is None else timestep
        return super().forward(input, incremental_state, torch.as_tensor(step + self.offset))

    def _shifted(self, input: Tensor, offsets: Tensor | int, largest: int) -> Tensor:
        """Look up position + offset for every token; padding keeps its own, zero, row."""
        table = sinusoidal_table(self, self.padding_idx + 1 + input.size(1) + largest)
        positions = make_positions(input, self.padding_idx)  # batch x length
        positions = positions + input.ne(self.padding_idx) * offsets
        return table.index_select(0, positions.view(-1)).view(*input.shape, -1).detach()


@contextmanager
def position_offset(model: nn.Module, encoder: int = 0, decoder: int = 0) -> Iterator[nn.Module]:
    """Evaluate a SHAPE or a stock Transformer with all its positions shifted by fixed offsets.

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
            side.embed_positions = ShiftedSinusoidalPositionalEmbedding.like(side.embed_positions)
            side.embed_positions.offset = offset
        yield model
    finally:
        for (side, _), embedding in zip(sides, before, strict=True):
            side.embed_positions = embedding
