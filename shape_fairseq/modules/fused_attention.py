"""Relative attention in fused GPU kernels: how they are called, and when they are trusted.

The kernels (`fused_kernels`) need Triton. Where it is missing, or where the kernels do not give the
results of `blockwise_relative_attention`, the blockwise form does the work.
"""

import functools
import logging
import math
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import UserError
from .blockwise_attention import blockwise_relative_attention
from .self_attention import joint_mask

logger = logging.getLogger(__name__)

KERNELS = ("forward", "query_gradient", "key_gradient")
CHOICES = ("auto", "blockwise", "fused")  # of --relative-attention
HEAD_WIDTHS = (32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_DISTANCE = 64
PHILOX_RANGE = 1 << 32


class Tiles(NamedTuple):
    """How many queries and keys a program looks at together, and with how many warps."""

    queries: int
    keys: int
    warps: int
    stages: int = 1


class Launch(NamedTuple):
    """What the launches of a forward and a backward pass have in common."""

    scale: float
    causal: bool
    dropout: float
    seed: int
    heads: int
    tiles: dict[str, Tiles]


@functools.cache
def load_kernels() -> ModuleType | None:
    """The Triton kernels, where Triton is installed and new enough."""
    try:
        from . import fused_kernels
    except (ImportError, AttributeError, TypeError):
        return None
    import triton.language

    return fused_kernels if hasattr(triton.language, "gather") else None


def columns_of(distances: int) -> int:
    """Distances beside the common one, padded to what a tile may have."""
    return max(16, 1 << max(0, distances - 2).bit_length())


def has_tensor_cores(capability: int) -> bool:
    """Whether Triton multiplies matrices on tensor cores: not before sm_80 (Triton 3.7)."""
    return capability >= 80


def choose_tiles(
    width: int, distances: int, dtype: torch.dtype, capability: int
) -> dict[str, Tiles]:
    """Tiles that leave all that a program needs in registers at head width 64 and L = 16.

    On tensor cores also with larger L; elsewhere a larger L spills some.
    """
    many = columns_of(distances) > 32
    if not has_tensor_cores(capability) or dtype == torch.float32:
        return {
            "forward": Tiles(16, 16, 8 if many else 4),
            "query_gradient": Tiles(16, 16, 8),
            "key_gradient": Tiles(32 if dtype == torch.float32 and not many else 16, 16, 8),
        }
    if width > 64 or many:
        return dict.fromkeys(KERNELS, Tiles(16, 32, 8)) | {"forward": Tiles(16, 32, 4)}
    return {
        "forward": Tiles(64, 32, 8),
        "query_gradient": Tiles(32, 32, 8),
        "key_gradient": Tiles(32, 32, 4),
    }


def capability_of(device: torch.device) -> int:
    """80 for sm_80, also where there is only Triton's interpreter."""
    if device.type != "cuda":
        return 80
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def rows_are_dense(*tensors: Tensor) -> list[Tensor]:
    """The tensors (N x T x d) with neighbouring numbers in a row, copied only if they must be."""
    return [tensor if tensor.stride(2) == 1 else tensor.contiguous() for tensor in tensors]


def strides(*tensors: Tensor) -> list[int]:
    return [tensor.stride(dim) for tensor in tensors for dim in (0, 1)]


def kernel_options(launch: Launch, name: str, query: Tensor, distances: int, padded: bool) -> dict:
    """The arguments that all kernels have and that are known when they are compiled."""
    tiles = launch.tiles[name]
    return {
        "causal": launch.causal,
        "padded": padded,
        "dropout": launch.dropout > 0,
        "precision": "ieee",
        "M": tiles.queries,
        "K": tiles.keys,
        "C": columns_of(distances),
        "D": query.size(2),
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


def dropout_arguments(launch: Launch) -> tuple[int, int, float]:
    """Seed, the smallest signed random number that keeps a weight, and what it then grows by."""
    dropped = round(launch.dropout * PHILOX_RANGE)
    return launch.seed, dropped - PHILOX_RANGE // 2, PHILOX_RANGE / (PHILOX_RANGE - dropped)


class FusedRelativeAttention(torch.autograd.Function):
    """One launch forward, two backward and the sums of the tables' gradients."""

    @staticmethod
    def forward(ctx, query, key, value, relative_keys, relative_values, padding, launch: Launch):
        kernels = load_kernels()
        assert kernels is not None  # `use_fused` has looked
        query, key, value = rows_are_dense(query, key, value)
        sequences, queries, _ = query.shape
        distances = relative_keys.size(0)
        output = torch.empty_like(query)
        log_sums = query.new_empty(sequences, queries, dtype=torch.float32)
        grid = (-(-queries // launch.tiles["forward"].queries), sequences)
        kernels.forward_kernel[grid](
            *(query, key, value, relative_keys, relative_values),
            query if padding is None else padding,
            *(output, log_sums),
            *strides(query, key, value, output),
            *(queries, key.size(1), launch.heads, distances),
            launch.scale * math.log2(math.e),
            *dropout_arguments(launch),
            **kernel_options(launch, "forward", query, distances, padding is not None),
        )
        ctx.save_for_backward(
            *(query, key, value, relative_keys, relative_values, padding, output, log_sums)
        )
        ctx.launch = launch
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        kernels, launch = load_kernels(), ctx.launch
        query, key, value, relative_keys, relative_values, padding, output, log_sums = (
            ctx.saved_tensors
        )
        (grad_output,) = rows_are_dense(grad_output)
        sequences, queries, width = query.shape
        keys, distances = key.size(1), relative_keys.size(0)
        grad_query, grad_key, grad_value = map(torch.empty_like, (query, key, value))
        products = torch.empty_like(log_sums)  # of the output with its gradient
        grid = (-(-queries // launch.tiles["query_gradient"].queries), sequences)
        table_sums = log_sums.new_empty(grid[0] * grid[1], 2, distances, width)
        inputs = (query, key, value, relative_keys, relative_values)
        padded = padding is not None
        pads = padding if padded else query
        sizes = (queries, keys, launch.heads, distances)
        numbers = (launch.scale, launch.scale * math.log2(math.e), *dropout_arguments(launch))
        kernels.query_gradient_kernel[grid](
            *(*inputs, pads, output, log_sums, grad_output, grad_query, products, table_sums),
            *strides(query, key, value, output, grad_output),
            *(*sizes, *numbers),
            **kernel_options(launch, "query_gradient", query, distances, padded),
        )
        grid = (-(-keys // launch.tiles["key_gradient"].keys), sequences)
        kernels.key_gradient_kernel[grid](
            *(*inputs, pads, log_sums, grad_output, products, grad_key, grad_value),
            *strides(query, key, value, grad_output),
            *(*sizes, *numbers),
            **kernel_options(launch, "key_gradient", query, distances, padded),
        )
        grad_tables = table_sums.sum(0).to(relative_keys.dtype)
        return grad_query, grad_key, grad_value, *grad_tables.unbind(0), None, None


def fused_relative_attention(
    query: Tensor,  # N x Q x d
    key: Tensor,  # N x K x d
    value: Tensor,  # N x K x d
    relative_keys: Tensor,  # R x d
    relative_values: Tensor,  # R x d
    padding: Tensor | None = None,  # B x K, true at padding; N is B times the heads
    causal: bool = False,
    dropout: float = 0.0,
    scale: float = 1.0,  # of the queries
    tiles: dict[str, Tiles] | None = None,
) -> Tensor:
    """The same as `blockwise_relative_attention` in few launches; needs Triton."""
    # Drawn on the CPU, so that the GPU need not be waited for.
    seed = int(torch.randint(1 << 31, (), device="cpu")) if dropout else 0
    heads = 1 if padding is None else query.size(0) // padding.size(0)
    if tiles is None:
        capability = capability_of(query.device)
        tiles = choose_tiles(query.size(2), relative_keys.size(0), query.dtype, capability)
    return FusedRelativeAttention.apply(
        *(query, key, value, relative_keys.contiguous(), relative_values.contiguous()),
        None if padding is None else padding.to(torch.uint8).contiguous(),
        Launch(scale, causal, dropout, seed, heads, tiles),
    )


def obstacle(query: Tensor, key: Tensor, distances: int, dropout: float) -> str | None:
    """Why the kernels cannot be used, if they cannot."""
    if query.dtype not in DTYPES:
        return f"the fused kernels do not know {query.dtype}"
    if query.size(2) not in HEAD_WIDTHS:
        return f"the fused kernels need heads of width 32, 64 or 128, not {query.size(2)}"
    if distances // 2 > MAX_DISTANCE:
        return f"the fused kernels need --max-relative-distance {MAX_DISTANCE} or less"
    if dropout >= 1:
        return "nothing is left to compute with attention dropout 1"
    if max(query.numel(), key.numel()) >= 1 << 31:
        return "the batch is too large for the fused kernels"
    if load_kernels() is None:
        return "the fused kernels need Triton 3.3 or newer (pip install 'shape-fairseq[triton]')"
    if query.device.type != "cuda" and not is_interpreted():
        return "the fused kernels need a CUDA device"
    return None


def is_interpreted() -> bool:
    """Whether Triton runs its kernels in Python, for tests."""
    from triton.runtime.interpreter import InterpretedFunction

    kernels = load_kernels()
    return kernels is not None and isinstance(kernels.forward_kernel, InterpretedFunction)


def use_fused(choice: str, query: Tensor, key: Tensor, distances: int, dropout: float) -> bool:
    """Whether the fused kernels do the work; `fused` insists, `auto` wants them to be trusted."""
    if choice == "blockwise" or (choice == "auto" and query.device.type != "cuda"):
        return False
    reason = obstacle(query, key, distances, dropout)
    if choice == "fused":
        if reason is not None:
            raise UserError(f"--relative-attention fused: {reason}")
        return True
    return (
        reason is None
        and has_tensor_cores(capability_of(query.device))
        and agrees_with_blockwise(query.dtype, query.size(2), distances, query.device)
    )


# What the self-check allows, relative to the largest number.
TOLERANCES = {torch.float16: 0.01, torch.bfloat16: 0.06, torch.float32: 1e-4}


@functools.cache
def agrees_with_blockwise(
    dtype: torch.dtype, width: int, distances: int, device: torch.device
) -> bool:
    """Whether the kernels compile and give blockwise results here; a warning says if they do not.

    Once per process, dtype, head width and table, at the first use. It takes random numbers of its
    own, so that a training does not depend on it.
    """
    try:
        difference = largest_difference(dtype, width, distances, device)
        if difference <= TOLERANCES[dtype]:
            return True
        reason = f"they differ by {difference:.2g} of the largest number"
    except Exception as error:  # Whatever a compiler or a driver may raise.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    logger.warning(
        "relative attention: the fused kernels are not used for %s, head width %d (%s);"
        " the blockwise form does the work",
        *(dtype, width, reason),
    )
    return False


@torch.enable_grad()
def largest_difference(
    dtype: torch.dtype, width: int, distances: int, device: torch.device, length: int = 150
) -> float:
    """How far output and gradients are from the blockwise form, on a small random input.

    Its length means several tiles, far ones too, and an end inside a tile.
    """
    generator = torch.Generator(device).manual_seed(1)
    heads = 2

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, device=device).to(dtype)
        return drawn.requires_grad_()

    inputs = [draw(2 * heads, length, width) for _ in range(3)]
    inputs += [draw(distances, width) for _ in range(2)]
    grad_output = draw(2 * heads, length, width).detach()
    padding = torch.zeros(2, length, dtype=torch.bool, device=device)
    padding[1, -length // 3 :] = True
    mask = joint_mask(None, padding, heads, torch.float32)
    wide = [tensor.detach().float().requires_grad_() for tensor in inputs]
    scale = width**-0.5
    worst = 0.0
    for causal in (False, True):
        query, key, value, *tables = inputs
        ours = fused_relative_attention(
            query, key, value, tables[0], tables[1], padding, causal, scale=scale
        )
        query, key, value, *tables = wide
        theirs = blockwise_relative_attention(
            query * scale, key, value, tables[0], tables[1], mask, causal
        )
        grads = torch.autograd.grad(ours, inputs, grad_output)
        expected = torch.autograd.grad(theirs, wide, grad_output.float())
        for mine, reference in zip((ours, *grads), (theirs, *expected), strict=True):
            largest = reference.abs().max().clamp(min=1e-3)
            error = ((mine.float() - reference).abs().max() / largest).item()
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst
