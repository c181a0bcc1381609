import pytest
import torch
from fairseq.modules import MultiheadAttention
from hypothesis import given, settings
from hypothesis import strategies as st

from shape_fairseq.modules.blockwise_attention import clipped_distances
from shape_fairseq.modules.relative_attention import (
    RelativeMultiheadAttention,
    joint_mask,
    relative_attention,
)
from tests.shape_fairseq.modules.shaw import causal_mask, padding_mask, reference_attention


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 9),
    limit=st.integers(0, 5),
    causal=st.booleans(),
    left=st.booleans(),
    data=st.data(),
)
def test_output_and_gradients_equal_the_reference(length, limit, causal, left, data):
    heads, width = 2, 3
    lengths = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=2))
    torch.manual_seed(data.draw(st.integers(0, 100)))
    count = len(lengths) * heads
    shapes = [(count, length, width)] * 3 + [(2 * limit + 1, width)] * 2
    inputs = [torch.randn(s, dtype=torch.double, requires_grad=True) for s in shapes]

    padding = padding_mask(lengths, length, left)
    attn_mask = causal_mask(length) if causal else None
    blocked = padding.repeat_interleave(heads, 0)[:, None, :].expand(-1, length, -1)
    if causal:
        blocked = blocked | attn_mask.isinf()
    visible = ~blocked.all(-1, keepdim=True)  # a padded query may see nothing at all
    upstream = torch.randn(shapes[0], dtype=torch.double) * visible

    mask = joint_mask(attn_mask, padding, heads, torch.double)
    ours, _ = relative_attention(*inputs, mask)
    theirs = reference_attention(*inputs, blocked & visible)
    torch.testing.assert_close(ours * visible, theirs * visible, atol=1e-10, rtol=1e-10)
    for mine, reference in zip(
        torch.autograd.grad((ours * upstream).sum(), inputs),
        torch.autograd.grad((theirs * upstream).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


def test_distances_are_clipped_and_queries_are_the_last_positions():
    whole = clipped_distances(5, 5, 2)
    assert whole.tolist() == [
        [2, 3, 4, 4, 4],
        [1, 2, 3, 4, 4],
        [0, 1, 2, 3, 4],
        [0, 0, 1, 2, 3],
        [0, 0, 0, 1, 2],
    ]
    assert clipped_distances(2, 5, 2).equal(whole[3:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_wholly_masked_query_is_finite(dtype):
    padding = torch.tensor([[True, True, False]])
    mask = joint_mask(torch.full((3, 3), -torch.inf).triu(1), padding, 1, dtype)
    tensors = [torch.randn(1, 3, 4).to(dtype) * 20 for _ in range(3)]
    tables = [torch.randn(5, 4).to(dtype) for _ in range(2)]
    output, weights = relative_attention(*tensors, *tables, mask)
    assert output.isfinite().all()
    assert weights[0, 2].tolist() == [0.0, 0.0, 1.0]


def test_half_precision_stays_near_single_precision():
    torch.manual_seed(0)
    tensors = [torch.randn(4, 30, 16) for _ in range(3)] + [torch.randn(9, 16) for _ in range(2)]
    single, _ = relative_attention(*tensors)
    half, weights = relative_attention(*(t.half() for t in tensors))
    assert half.dtype == torch.float16 and weights.dtype == torch.float32
    torch.testing.assert_close(half.float(), single, atol=0.03, rtol=0.03)


def test_dropout_reaches_keys_and_values_of_both_terms():
    tensors = [torch.randn(2, 5, 4) for _ in range(3)] + [torch.randn(5, 4) for _ in range(2)]
    output, weights = relative_attention(*tensors, dropout=torch.zeros_like)
    assert output.abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))


def attention(**kwargs):
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(
        8, 2, self_attention=True, max_relative_distance=2, **kwargs
    )
    return module.double().eval()


def test_without_distances_the_module_is_fairseqs_own():
    ours = attention()
    ours.relative_keys.data.zero_()
    ours.relative_values.data.zero_()
    stock = MultiheadAttention(8, 2, self_attention=True).double().eval()
    stock.load_state_dict(ours.state_dict(), strict=False)
    x = torch.randn(6, 3, 8, dtype=torch.double)
    padding = padding_mask([6, 2, 4], 6, left=True)
    for options in ({"key_padding_mask": padding}, {"attn_mask": causal_mask(6)}, {}):
        mine, my_weights = ours(x, x, x, **options)
        theirs, their_weights = stock(x, x, x, **options)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(my_weights, their_weights)
        _, head_weights = ours(x, x, x, **options, need_head_weights=True)
        torch.testing.assert_close(head_weights.mean(dim=0), their_weights)
        assert ours(x, x, x, **options, need_weights=False)[1] is None


def test_incremental_steps_equal_the_whole_and_can_be_reordered():
    module = attention()
    x = torch.randn(7, 3, 8, dtype=torch.double)
    order = torch.tensor([2, 0, 0])
    state: dict = {}
    for step in range(4):
        module(x[step : step + 1], None, None, incremental_state=state)
    module.reorder_incremental_state(state, order)
    reordered = torch.cat([x[:4, order], x[4:]])
    whole, _ = module(reordered, None, None, attn_mask=causal_mask(7))
    for step in range(4, 7):
        part, _ = module(x[step : step + 1], None, None, incremental_state=state)
        torch.testing.assert_close(part[0], whole[step])


def test_the_module_drops_attention_in_training_only():
    module = attention(dropout=1.0)
    x = torch.randn(4, 2, 8, dtype=torch.double)
    assert module.eval()(x, x, x)[0].abs().min() > 0
    nothing = module.out_proj.bias.expand(4, 2, 8)
    assert module.train()(x, x, x)[0].equal(nothing)
