"""RoPE: queries and keys are turned by angles that grow with their position (Su et al., 2021)."""

import torch
from torch import Tensor

from .self_attention import DistanceSelfAttention


def rotations(positions: Tensor, dim: int, base: float, dtype: torch.dtype) -> Tensor:
    """exp(i * position * base^(-2j/dim)) for pair j: complex, length x dim/2."""
    pairs = torch.arange(0, dim, 2, dtype=dtype, device=positions.device)
    angles = positions.to(dtype)[:, None] * base ** (-pairs / dim)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of neighbours (x_0, x_1), (x_2, x_3), ... of x, N x T x d."""
    pairs = x.to(rotation.real.dtype).unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).type_as(x)


class RotarySelfAttention(DistanceSelfAttention):
    """fairseq's self-attention on rotated queries and keys: scores depend on distances alone."""

    def __init__(self, *args, base: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.base = base

    def place(self, query: Tensor, key: Tensor, first: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(first, first + query.size(1), device=query.device)
        precise = torch.promote_types(query.dtype, torch.float32)
        rotation = rotations(positions, self.head_dim, self.base, precise)
        return rotate(query, rotation), rotate(key, rotation)
