"""The Triton kernels: on a GPU where there is one, else in Triton's interpreter."""

import importlib.util
import logging

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shape_fairseq.errors import UserError
from shape_fairseq.modules import fused_attention
from shape_fairseq.modules.blockwise_attention import clipped_distances
from shape_fairseq.modules.fused_attention import (
    KERNELS,
    Tiles,
    fused_relative_attention,
    load_kernels,
    use_fused,
)
from shape_fairseq.modules.relative_attention import (
    RelativeMultiheadAttention,
    relative_attention,
)
from shape_fairseq.modules.self_attention import joint_mask
from tests.shape_fairseq.modules.shaw import causal_mask, padding_mask

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def runs_here() -> bool:
    if importlib.util.find_spec("triton") is None or load_kernels() is None:
        return False
    return DEVICE.type == "cuda" or fused_attention.is_interpreted()


@pytest.fixture(autouse=True, scope="module")
def bf16_products():
    """Let Triton's interpreter multiply bf16 numbers: it takes their bits for whole numbers."""
    if importlib.util.find_spec("triton") is None:
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, tl

    dot = InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(numpy.uint32) << 16  # bf16 is the upper half of fp32
        return TensorHandle(bits.view(numpy.float32), tl.float32)

    def create_dot(self, a, b, *arguments):
        return dot(self, widened(a), widened(b), *arguments)

    InterpreterBuilder.create_dot = create_dot
    yield
    InterpreterBuilder.create_dot = dot


needs_triton = pytest.mark.skipif(not runs_here(), reason="needs Triton 3.3 or newer")
SMALL = dict.fromkeys(KERNELS, Tiles(16, 16, 4))
UNEVEN = {
    "forward": Tiles(32, 16, 4),
    "query_gradient": Tiles(16, 32, 4),
    "key_gradient": Tiles(32, 16, 4),
}
# The largest error, relative to the largest number of a tensor or to 1; sums are in fp32.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# Relative to what a number would be if nothing in its sums cancelled. Weights, their sums by
# distance and the result are rounded to the dtype.
THREE_ROUNDINGS = {torch.float32: 1e-6, torch.float16: 3 * 2**-11, torch.bfloat16: 3 * 2**-8}
HEADS, WIDTH = 2, 32


def random_inputs(sequences, queries, keys, max_distance, dtype=torch.float32, width=WIDTH):
    """Query, key, value in fairseq's memory layout, and both tables."""
    tensors = [torch.randn(length, sequences, width) for length in (queries, keys, keys)]
    tensors = [tensor.transpose(0, 1) for tensor in tensors]
    tensors += [torch.randn(2 * max_distance + 1, width) for _ in range(2)]
    return [tensor.to(DEVICE, dtype).requires_grad_() for tensor in tensors]


def in_double(inputs):
    return [tensor.detach().double().requires_grad_() for tensor in inputs]


def assert_near(ours, theirs, dtype):
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.dtype == dtype and mine.isfinite().all()
        largest = max(reference.abs().max().item(), 1.0)
        assert (mine.double() - reference).abs().max().item() <= TOLERANCE[dtype] * largest


def magnitudes(inputs, grad_output, weights, scale):
    """Output and gradients as they would be if all terms had one sign: what errors scale with.

    A sum that cancels, such as the gradient of a softmax over one key, which is zero, has the
    rounding errors of its terms.
    """
    query, key, value, keys_table, values_table = (x.detach().double().abs() for x in inputs)
    query, grad = scale * query, grad_output.double().abs()
    max_distance = len(keys_table) // 2
    distances = clipped_distances(query.size(1), key.size(1), max_distance, query.device)
    distances = distances.expand(len(query), -1, -1)  # N x Q x K

    def by_distance(terms):  # N x Q x K to N x Q x R
        empty = terms.new_zeros(*terms.shape[:2], len(keys_table))
        return empty.scatter_add(2, distances, terms)

    grad_weights = grad @ value.mT + (grad @ values_table.mT).gather(2, distances)
    grad_scores = weights * (grad_weights + (weights * grad_weights).sum(-1, keepdim=True))
    return [
        weights @ value + by_distance(weights) @ values_table,
        scale * (grad_scores @ key + by_distance(grad_scores) @ keys_table),
        grad_scores.mT @ query,
        weights.mT @ grad,
        (by_distance(grad_scores).mT @ query).sum(0),
        (by_distance(weights).mT @ grad).sum(0),
    ]


@needs_triton
@pytest.mark.slow
# The interpreter is slow: a few examples, the same in every run.
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    queries=st.sampled_from([1, 15, 16, 17, 33]),
    earlier=st.sampled_from([0, 0, 5]),
    max_distance=st.sampled_from([0, 1, 3, 15, 16, 17, 64]),
    dtype=st.sampled_from(list(TOLERANCE)),
    tiles=st.sampled_from([SMALL, UNEVEN]),
    causal=st.booleans(),
    left=st.booleans(),
    data=st.data(),
)
def test_output_and_gradients_equal_the_plain_form_in_double_precision(
    queries, earlier, max_distance, dtype, tiles, causal, left, data
):
    keys = queries + earlier
    torch.manual_seed(data.draw(st.integers(0, 100)))
    lengths = [data.draw(st.integers(1, keys))]
    inputs = random_inputs(HEADS, queries, keys, max_distance, dtype)
    padding = padding_mask(lengths, keys, left).to(DEVICE)
    future = causal_mask(keys)[earlier:].to(DEVICE) if causal else None
    blocked = padding[:, None, :] | (torch.zeros(()) if future is None else future).isinf()
    visible = ~blocked.expand(1, queries, keys).all(-1).to(DEVICE)[:, :, None]
    grad_output = torch.randn_like(inputs[0]) * visible

    ours = fused_relative_attention(*inputs, padding, causal, scale=0.3, tiles=tiles)
    doubles = in_double(inputs)
    mask = joint_mask(future, padding, HEADS, torch.double)
    theirs, weights = relative_attention(0.3 * doubles[0], *doubles[1:], mask)
    grads = torch.autograd.grad(ours, inputs, grad_output)
    expected = torch.autograd.grad(theirs, doubles, grad_output.double())
    assert ours.isfinite().all()
    sizes = magnitudes(inputs, grad_output, weights.detach() * visible, 0.3)
    results = zip([ours * visible, *grads], [theirs * visible, *expected], sizes, strict=True)
    for result, reference, size in results:
        assert result.dtype == dtype
        error = (result.double() - reference).abs().max()
        assert error <= THREE_ROUNDINGS[dtype] * size.max()


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128])
def test_wider_heads_and_the_tiles_that_a_gpu_takes(width):
    torch.manual_seed(0)
    inputs = random_inputs(1, 34, 34, 16, torch.float16, width)
    grad_output = torch.randn_like(inputs[0])
    ours = fused_relative_attention(*inputs, scale=width**-0.5)
    doubles = in_double(inputs)
    theirs, _ = relative_attention(width**-0.5 * doubles[0], *doubles[1:])
    grads = torch.autograd.grad(ours, inputs, grad_output)
    expected = torch.autograd.grad(theirs, doubles, grad_output.double())
    assert_near([ours, *grads], [theirs, *expected], torch.float16)


def kept_by_dropout(length, tiles, seed):
    """Which weights are kept: all are the same, and values tell keys apart."""
    query = torch.zeros(HEADS, length, WIDTH, device=DEVICE)
    value = torch.eye(length, WIDTH, device=DEVICE).expand(HEADS, -1, -1).contiguous()
    table = torch.zeros(3, WIDTH, device=DEVICE)
    torch.manual_seed(seed)
    output = fused_relative_attention(query, query, value, table, table, dropout=0.4, tiles=tiles)
    return output[:, :, :length] > 0


@needs_triton
@pytest.mark.slow
def test_dropout_is_the_same_backwards_and_whatever_the_tiles():
    length, dropout = 30, 0.4
    kept = kept_by_dropout(length, SMALL, seed=3)
    assert kept.equal(kept_by_dropout(length, UNEVEN, seed=3))
    assert not kept.equal(kept_by_dropout(length, SMALL, seed=4))
    assert abs(kept.float().mean().item() - (1 - dropout)) < 0.05
    assert not kept[0].equal(kept[1])

    torch.manual_seed(0)
    inputs = random_inputs(HEADS, length, length, 3)
    grad_output = torch.randn_like(inputs[0])
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        ours = fused_relative_attention(*inputs, dropout=dropout, tiles=SMALL)
        results.append([ours, *torch.autograd.grad(ours, inputs, grad_output)])
    assert all(map(torch.equal, *results))  # the same bits

    doubles = in_double(inputs)
    theirs, _ = relative_attention(
        *doubles, dropout=lambda weights: weights * kept.double() / (1 - dropout)
    )
    expected = torch.autograd.grad(theirs, doubles, grad_output.double())
    assert_near(results[0], [theirs, *expected], torch.float32)


@needs_triton
@pytest.mark.slow
def test_the_module_takes_the_kernels_and_gets_the_dense_result():
    torch.manual_seed(0)
    options = {"self_attention": True, "max_relative_distance": 2, "causal": True}
    module = RelativeMultiheadAttention(64, HEADS, **options, implementation="fused").to(DEVICE)
    x = torch.randn(10, 2, 64, device=DEVICE)
    masks = {
        "key_padding_mask": padding_mask([10, 4], 10, left=False).to(DEVICE),
        "attn_mask": causal_mask(10).float().to(DEVICE),
    }
    dense, _ = module(x, x, x, **masks, need_weights=True)
    fused, nothing = module(x, x, x, **masks, need_weights=False)
    assert nothing is None and "Fused" in str(module_function(fused))
    torch.testing.assert_close(fused, dense, atol=1e-5, rtol=1e-5)


def module_function(output):
    """The names of all that the output was computed with."""
    names, pending = [], [output.grad_fn]
    while pending:
        node = pending.pop()
        names.append(node.name())
        pending += [parent for parent, _ in node.next_functions if parent is not None]
    return names


def test_a_gather_over_the_padded_columns_has_room_for_all_distances():
    for max_distance in range(65):
        distances = 2 * max_distance + 1
        columns = fused_attention.columns_of(distances)
        assert columns >= max(16, distances - 1) and columns & (columns - 1) == 0
        assert len(clipped_distances(1, 1, max_distance)) == 1


QUERY = torch.zeros(2, 4, 32)


def test_on_a_cpu_nothing_is_fused_unless_somebody_insists(monkeypatch):
    assert not use_fused("auto", QUERY, QUERY, 5, 0.1)
    assert not use_fused("blockwise", QUERY, QUERY, 5, 0.1)
    monkeypatch.setattr(fused_attention, "load_kernels", lambda: None)
    with pytest.raises(UserError, match=r"--relative-attention fused: .* need Triton"):
        use_fused("fused", QUERY, QUERY, 5, 0.1)
    for query, distances, dropout, reason in (
        (QUERY.double(), 5, 0.0, "float64"),
        (torch.zeros(2, 4, 48), 5, 0.0, "not 48"),
        (QUERY, 131, 0.0, "--max-relative-distance 64 or less"),
        (QUERY, 5, 1.0, "dropout 1"),
    ):
        with pytest.raises(UserError, match=reason):
            use_fused("fused", query, query, distances, dropout)


@pytest.mark.parametrize("trouble", ["differ", "fail"])
def test_kernels_that_differ_or_fail_are_not_used_and_one_warning_says_so(
    trouble, monkeypatch, caplog
):
    def check(*_):
        if trouble == "fail":
            raise RuntimeError("no such instruction\nand more")
        return 0.5

    monkeypatch.setattr(fused_attention, "largest_difference", check)
    fused_attention.agrees_with_blockwise.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not fused_attention.agrees_with_blockwise(torch.float16, 64, 33, DEVICE)
    fused_attention.agrees_with_blockwise.cache_clear()
    assert len(caplog.records) == 1
    expected = "no such instruction" if trouble == "fail" else "differ by 0.5"
    assert expected in caplog.text and "and more" not in caplog.text


@needs_triton
@pytest.mark.slow
def test_the_self_check_passes_here():
    state = torch.get_rng_state()
    difference = fused_attention.largest_difference(torch.float16, 32, 5, DEVICE, length=40)
    assert difference <= fused_attention.TOLERANCES[torch.float16] / 2
    assert torch.get_rng_state().equal(state)
