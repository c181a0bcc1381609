import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shape_fairseq.modules import blockwise_attention
from shape_fairseq.modules.blockwise_attention import (
    CPU_LIMITS,
    BlockLimits,
    add_by_distance,
    blocks,
    blockwise_relative_attention,
    clipped_distances,
    draw_kept,
    sum_by_distance,
)
from shape_fairseq.modules.relative_attention import (
    RelativeMultiheadAttention,
    joint_mask,
    relative_attention,
)
from tests.shape_fairseq.modules.shaw import causal_mask, padding_mask, reference_attention

TINY_BLOCKS = BlockLimits(queries=3, scores=40)
SHORT = BlockLimits(queries=3, scores=40, short=8)  # one piece up to 8 keys, blocks beyond
HEADS = 2


def random_inputs(sequences, queries, keys, max_distance, width=3, dtype=torch.double):
    """Query, key, value and both tables."""
    shapes = [
        (sequences, queries, width),
        (sequences, keys, width),
        (sequences, keys, width),
        (2 * max_distance + 1, width),
        (2 * max_distance + 1, width),
    ]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def assert_same(ours, theirs, inputs, upstream):
    """The same output, and the same gradients of the inputs and of both tables, to 1e-10."""
    used = upstream != 0
    torch.testing.assert_close(ours * used, theirs * used, atol=1e-10, rtol=1e-10)
    for mine, reference in zip(
        torch.autograd.grad(ours, inputs, upstream),
        torch.autograd.grad(theirs, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@settings(max_examples=150, deadline=None)
@given(
    length=st.integers(1, 11),
    max_distance=st.integers(0, 5),
    block_queries=st.integers(1, 5),
    block_scores=st.integers(1, 60),
    short=st.sampled_from([0, 8]),
    causal=st.booleans(),
    left=st.booleans(),
    data=st.data(),
)
def test_every_blocking_equals_the_papers_formula(
    length, max_distance, block_queries, block_scores, short, causal, left, data
):
    lengths = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=2))
    torch.manual_seed(data.draw(st.integers(0, 100)))
    inputs = random_inputs(len(lengths) * HEADS, length, length, max_distance, width=8)
    padding = padding_mask(lengths, length, left)
    blocked = padding.repeat_interleave(HEADS, 0)[:, None, :].expand(-1, length, -1)
    if causal:
        blocked = blocked | causal_mask(length).isinf()
    visible = ~blocked.all(-1, keepdim=True)  # a padded query may see nothing at all
    ours = blockwise_relative_attention(
        *inputs,
        joint_mask(None, padding, HEADS, torch.double),
        causal,
        limits=BlockLimits(block_queries, block_scores, short),
    )
    assert ours.isfinite().all()
    theirs = reference_attention(*inputs, blocked & visible)
    assert_same(ours, theirs, inputs, torch.randn_like(theirs) * visible)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 33, 127, 128, 129, 143, 144, 256, 300])
def test_real_blocks_equal_the_dense_form_around_every_boundary(length, causal):
    torch.manual_seed(length)
    inputs = random_inputs(2, length, length, max_distance=16)
    theirs, _ = relative_attention(*inputs, causal_mask(length) if causal else None)
    ours = blockwise_relative_attention(*inputs, causal=causal, limits=CPU_LIMITS)
    assert_same(ours, theirs, inputs, torch.randn_like(theirs))


@given(
    queries=st.integers(1, 6),
    earlier=st.integers(0, 9),
    max_distance=st.integers(0, 4),
    causal=st.booleans(),
    limits=st.sampled_from([TINY_BLOCKS, SHORT]),
)
@settings(deadline=None)
def test_queries_may_be_the_last_positions_only(queries, earlier, max_distance, causal, limits):
    keys = earlier + queries
    inputs = random_inputs(2, queries, keys, max_distance, width=8)
    theirs, _ = relative_attention(*inputs, causal_mask(keys)[earlier:] if causal else None)
    ours = blockwise_relative_attention(*inputs, causal=causal, limits=limits)
    assert_same(ours, theirs, inputs, torch.randn_like(theirs))


@given(
    length=st.integers(1, 12),
    max_distance=st.integers(0, 5),
    causal=st.booleans(),
)
@settings(deadline=None)
def test_spreading_and_summing_are_adjoint(length, max_distance, causal):
    distances = 2 * max_distance + 1
    for block in blocks(3, length, length, max_distance, causal, TINY_BLOCKS):
        n = block.sequences.stop - block.sequences.start
        by_distance = torch.randn(n, block.height, distances, dtype=torch.double)
        by_distance[:, :, 0] = 0
        weights = torch.randn(n, block.height, block.keys, dtype=torch.double)
        spread = torch.zeros_like(weights)
        add_by_distance(spread, by_distance, block)
        index = clipped_distances(length, length, max_distance)[block.queries, : block.keys]
        assert spread.equal(by_distance.gather(2, index.expand(n, -1, -1)))
        summed = sum_by_distance(weights, block, distances, in_common=7.0)
        assert summed[:, :, 0].eq(7).all()
        torch.testing.assert_close((summed * by_distance).sum(), (weights * spread).sum())


@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(0, 5), st.integers(1, 4), st.integers(1, 50)
)
def test_blocks_cover_every_query_of_every_sequence_once(n, queries, earlier, height, scores):
    keys = queries + earlier
    seen = torch.zeros(n, queries)
    for block in blocks(n, queries, keys, 2, False, BlockLimits(height, scores)):
        seen[block.sequences, block.queries] += 1
        size = (block.sequences.stop - block.sequences.start) * block.height * block.keys
        assert size <= max(scores, height * keys)
    assert seen.eq(1).all()


@pytest.mark.slow
@pytest.mark.parametrize("limits", [TINY_BLOCKS, SHORT])
def test_dropout_has_the_gradients_of_what_was_dropped(limits):
    """Numeric differences, with the same weights dropped every time."""
    inputs = random_inputs(2, 7, 7, max_distance=2, width=8)

    def attend(*tensors):
        torch.manual_seed(3)
        return blockwise_relative_attention(*tensors, causal=True, dropout=0.4, limits=limits)

    assert torch.autograd.gradcheck(attend, inputs)
    assert not attend(*inputs).allclose(blockwise_relative_attention(*inputs, causal=True))


@pytest.mark.parametrize("width", [3, 8])  # 8: as one short piece
def test_dropout_keeps_the_expectation(width):
    torch.manual_seed(0)
    inputs = random_inputs(1, 6, 6, max_distance=2, width=width)
    with torch.no_grad():
        plain = blockwise_relative_attention(*inputs)
        many = [t.expand(40_000, -1, -1) for t in inputs[:3]] + inputs[3:]
        dropped = blockwise_relative_attention(*many, dropout=0.3)
    torch.testing.assert_close(dropped.mean(0, keepdim=True), plain, atol=0.03, rtol=0)
    assert blockwise_relative_attention(*inputs, dropout=1.0).abs().max() == 0


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5, 0.99999, 1.0])
def test_the_share_of_dropped_weights_is_what_was_asked_for(dropout):
    kept = draw_kept(torch.ones(1_000_003), dropout, torch.Generator().manual_seed(1))
    assert set(kept.tolist()) <= {0.0, 1.0}
    assert abs(kept.mean().item() - (1 - dropout)) < 0.002
    assert abs(kept[::4].mean() - kept[3::4].mean()) < 0.005  # all bits of a number are random


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [30, 150])  # in one piece, and in blocks
def test_half_precision_stays_near_single_precision_and_finite(length, dtype):
    torch.manual_seed(0)
    inputs = random_inputs(4, length, length, max_distance=16, width=32, dtype=torch.float32)
    halves = [t.detach().to(dtype).requires_grad_() for t in inputs]
    upstream = torch.randn(4, length, 32)
    mask = joint_mask(None, padding_mask([length, 3], length, left=True), HEADS, dtype)
    single = blockwise_relative_attention(*inputs, mask.float(), causal=True)
    half = blockwise_relative_attention(*halves, mask, causal=True)
    assert half.dtype == dtype
    visible = mask[:, 0, :, None] == 0  # the queries that see at least themselves
    tolerance = 0.02 if dtype == torch.float16 else 0.15
    torch.testing.assert_close(half.float() * visible, single * visible, atol=tolerance, rtol=0.05)
    for mine, reference in zip(
        torch.autograd.grad(half, halves, (upstream * visible).to(dtype)),
        torch.autograd.grad(single, inputs, upstream * visible),
        strict=True,
    ):
        assert mine.dtype == dtype and mine.isfinite().all()
        scale = reference.abs().max().item()
        torch.testing.assert_close(mine.float(), reference, atol=tolerance * scale, rtol=0.05)


def test_large_half_precision_scores_do_not_overflow():
    inputs = [torch.full((1, 40, 64), 20.0), torch.full((1, 40, 64), 20.0), torch.ones(1, 40, 64)]
    tables = [torch.full((5, 64), 20.0), torch.ones(5, 64)]
    output = blockwise_relative_attention(*(t.half() for t in inputs + tables), causal=True)
    torch.testing.assert_close(output, torch.full_like(output, 2.0))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_square_of_the_length():
    """No tensor of a forward and backward pass is larger than a block or the inputs."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.untyped_storage().nbytes())
            return result

    limits = BlockLimits(queries=16, scores=16 * 1000)
    inputs = random_inputs(2, 1000, 1000, max_distance=4, width=8, dtype=torch.float32)
    with Watch():
        output = blockwise_relative_attention(*inputs, causal=False, limits=limits)
        output.sum().backward()
    assert 0 < largest <= 4 * max(limits.scores, 2 * 1000 * 9)


@pytest.mark.parametrize("causal", [False, True])
def test_the_module_takes_the_blockwise_path_and_gets_the_dense_result(causal, monkeypatch):
    monkeypatch.setattr(blockwise_attention, "CPU_LIMITS", TINY_BLOCKS)
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(
        8, HEADS, self_attention=True, max_relative_distance=2, causal=causal
    ).double()
    x = torch.randn(10, 3, 8, dtype=torch.double)
    options = {
        "key_padding_mask": padding_mask([10, 4, 7], 10, left=False),
        "attn_mask": causal_mask(10) if causal else None,
    }
    dense, weights = module(x, x, x, **options, need_weights=True)
    fast, nothing = module(x, x, x, **options, need_weights=False)
    assert weights is not None and nothing is None
    torch.testing.assert_close(fast, dense, atol=1e-10, rtol=1e-10)


def test_a_mask_of_another_kind_is_respected():
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(8, HEADS, self_attention=True, max_relative_distance=2)
    x = torch.randn(5, 1, 8)
    only_first = torch.full((5, 5), -torch.inf)
    only_first[:, 0] = 0
    masked, _ = module(x, x, x, attn_mask=only_first, need_weights=False)
    dense, weights = module(x, x, x, attn_mask=only_first)
    assert weights[0, :, 0].eq(1).all()
    torch.testing.assert_close(masked, dense)


def test_the_module_drops_weights_in_blocks_in_training_only():
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(
        8, HEADS, self_attention=True, max_relative_distance=2, dropout=1.0
    )
    x = torch.randn(4, 2, 8)
    nothing = module.out_proj.bias.expand(4, 2, 8)
    assert module.train()(x, x, x, need_weights=False)[0].equal(nothing)
    assert not module.eval()(x, x, x, need_weights=False)[0].allclose(nothing)
