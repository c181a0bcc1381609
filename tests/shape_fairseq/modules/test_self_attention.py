"""RoPE, ALiBi and T5 bias: each equals its paper, in every way in which fairseq calls it."""

import math
from functools import partial

import pytest
import torch
from fairseq.modules import MultiheadAttention

from shape_fairseq.modules import biased_attention
from shape_fairseq.modules.alibi import LinearBias
from shape_fairseq.modules.biased_attention import BiasedSelfAttention
from shape_fairseq.modules.rotary_attention import RotarySelfAttention
from shape_fairseq.modules.self_attention import DistanceSelfAttention
from shape_fairseq.modules.t5_bias import BucketedBias
from tests.shape_fairseq.modules import references
from tests.shape_fairseq.modules.shaw import causal_mask, padding_mask

HEADS, WIDTH, LENGTH = 3, 12, 9  # three heads: ALiBi's slopes are not those of a power of two
KINDS = ("rope", "alibi", "t5")


def build(kind: str, causal: bool, **options) -> DistanceSelfAttention:
    torch.manual_seed(0)
    if kind == "rope":
        build_attention = partial(RotarySelfAttention, base=100.0)
    else:
        bias = LinearBias(HEADS) if kind == "alibi" else BucketedBias(HEADS, 8, 6, causal, WIDTH)
        build_attention = partial(BiasedSelfAttention, distance_bias=bias)
    module = build_attention(WIDTH, HEADS, self_attention=True, causal=causal, **options)
    return module.double().eval()


def score_of(kind: str, module, causal: bool):
    """score(head, query, key, i, j), from the formulas of the papers."""

    def plain(query, key):
        return query @ key / math.sqrt(len(query))

    def alibi(head, query, key, i, j):
        return plain(query, key) - references.alibi_slopes(HEADS)[head] * abs(i - j)

    def t5(head, query, key, i, j):
        bucket = references.t5_bucket(j - i, 8, 6, causal)
        return plain(query, key) + module.distance_bias.table[bucket, head]

    def rope(head, query, key, i, j):
        return references.rope_score(query, key, i, j, base=100.0)

    return {"rope": rope, "alibi": alibi, "t5": t5}[kind]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_equal_the_papers(kind, padding, causal, need_weights):
    assert_equals_paper(kind, padding, causal, need_weights)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("rows", [1, 4, LENGTH, 2 * LENGTH, 4 * LENGTH])
def test_blocks_of_the_backward_pass_change_nothing(rows, padding, causal, monkeypatch):
    """A query, four of nine, a head, two of three heads, all heads of a sequence."""
    monkeypatch.setattr(biased_attention, "BLOCK_SIZE", rows * LENGTH)
    assert_equals_paper("t5", padding, causal, need_weights=False)


def test_blocks_know_masks_that_hide_more_than_the_future(monkeypatch):
    monkeypatch.setattr(biased_attention, "BLOCK_SIZE", 4 * LENGTH)
    module = build("t5", causal=False)
    x = torch.randn(LENGTH, 2, WIDTH, dtype=torch.double, requires_grad=True)
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.double)
    mask[::2, 1::3] = -torch.inf
    upstream = torch.randn(LENGTH, 2, WIDTH, dtype=torch.double)
    results = []
    for need_weights in (False, True):  # in blocks, and as a whole
        output, _ = module(x, x, x, attn_mask=mask, need_weights=need_weights)
        gradients = torch.autograd.grad((output * upstream).sum(), [x, *module.parameters()])
        results.append((output, *gradients))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


def assert_equals_paper(kind, padding, causal, need_weights):
    module = build(kind, causal)
    x = torch.randn(LENGTH, 2, WIDTH, dtype=torch.double, requires_grad=True)
    padded = padding_mask([4, LENGTH], LENGTH, left=padding == "left")
    if padding == "none":
        padded = torch.zeros_like(padded)
    blocked = padded[:, None, :].expand(-1, LENGTH, -1)
    if causal:
        blocked = blocked | causal_mask(LENGTH).isinf()
    visible = ~blocked.all(-1).t().unsqueeze(-1)  # T x B x 1: a padded query may see nothing
    upstream = torch.randn(LENGTH, 2, WIDTH, dtype=torch.double) * visible

    ours, _ = module(
        *(x, x, x),
        key_padding_mask=None if padding == "none" else padded,
        attn_mask=causal_mask(LENGTH) if causal else None,
        need_weights=need_weights,
    )
    theirs = references.reference_attention(module, x, blocked, score_of(kind, module, causal))
    torch.testing.assert_close(ours * visible, theirs * visible, atol=1e-10, rtol=1e-10)
    inputs = [x, *module.parameters()]
    for mine, reference in zip(
        torch.autograd.grad((ours * upstream).sum(), inputs),
        torch.autograd.grad((theirs * upstream).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_incremental_steps_equal_the_whole_and_can_be_reordered(kind):
    module = build(kind, causal=True)
    x = torch.randn(7, 3, WIDTH, dtype=torch.double)
    order = torch.tensor([2, 0, 0])
    state: dict = {}
    for step in range(4):
        module(x[step : step + 1], None, None, incremental_state=state)
    module.reorder_incremental_state(state, order)
    reordered = torch.cat([x[:4, order], x[4:]])
    whole, _ = module(reordered, None, None, attn_mask=causal_mask(7))
    for step in range(4, 7):
        part, _ = module(x[step : step + 1], None, None, incremental_state=state)
        torch.testing.assert_close(part[0], whole[step], atol=1e-10, rtol=1e-10)


def test_without_a_representation_it_is_fairseqs_own():
    torch.manual_seed(0)
    ours = DistanceSelfAttention(WIDTH, HEADS, self_attention=True, causal=True).double().eval()
    stock = MultiheadAttention(WIDTH, HEADS, self_attention=True).double().eval()
    stock.load_state_dict(ours.state_dict())
    x = torch.randn(6, 3, WIDTH, dtype=torch.double)
    padding = padding_mask([6, 2, 4], 6, left=True)
    for options in ({"key_padding_mask": padding}, {"attn_mask": causal_mask(6)}, {}):
        for more in ({}, {"need_head_weights": True}, {"need_weights": False}):
            mine, my_weights = ours(x, x, x, **options, **more)
            theirs, their_weights = stock(x, x, x, **options, **more)
            torch.testing.assert_close(mine, theirs)
            if my_weights is not None and "need_head_weights" not in more:
                torch.testing.assert_close(my_weights, their_weights)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_stays_near_single_precision(kind):
    single = build(kind, causal=True).float()
    x = torch.randn(200, 2, WIDTH)
    padding = padding_mask([200, 150], 200, left=True)
    options = {"attn_mask": causal_mask(200).float(), "key_padding_mask": padding}
    expected, _ = single(x, x, x, **options, need_weights=False)
    half = build(kind, causal=True).half()
    for need_weights in (False, True):
        output, _ = half(*[x.half()] * 3, **options, need_weights=need_weights)
        assert output.dtype == torch.float16 and output.isfinite().all()
        real = ~padding.t()  # what padding sees has no meaning
        torch.testing.assert_close(output[real].float(), expected[real], atol=0.02, rtol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_dropped_in_training_only(kind):
    module = build(kind, causal=False, dropout=1.0)
    x = torch.randn(4, 2, WIDTH, dtype=torch.double)
    nothing = module.out_proj.bias.expand(4, 2, WIDTH)
    for need_weights in (False, True):
        assert module.eval()(x, x, x, need_weights=need_weights)[0].abs().min() > 0
        assert module.train()(x, x, x, need_weights=need_weights)[0].equal(nothing)


@pytest.mark.parametrize("kind", KINDS)
def test_a_causal_module_without_padding_keeps_no_square_of_the_length(kind):
    """RoPE's memory grows with the length; a bias is a matrix for each head, not each sequence."""
    module = build(kind, causal=True).float().train()
    length, batch = 300, 4
    x = torch.randn(length, batch, WIDTH, requires_grad=True)
    kept: list[int] = []

    def pack(tensor):
        kept.append(tensor.untyped_storage().nbytes())
        return tensor

    mask = causal_mask(length).float()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(x, x, x, attn_mask=mask, need_weights=False)
    square = 4 * length * length
    if kind == "rope":
        assert max(kept) < square
    elif kind == "alibi":
        assert max(kept) <= 2 * HEADS * square
