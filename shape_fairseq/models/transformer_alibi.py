"""ALiBi: fairseq's Transformer with linear biases, and its architectures."""

from functools import partial

from ..modules.alibi import LinearBias
from ..modules.biased_attention import BiasedSelfAttention
from .architectures import register
from .relative_positions import RelativePositionsModel


@register("alibi")
class TransformerALiBiModel(RelativePositionsModel):
    """A Transformer whose scores fall linearly with the distance (Press et al., 2022)."""

    @classmethod
    def attention_builder(cls, cfg, side, causal):
        bias = LinearBias(side.attention_heads)
        return partial(BiasedSelfAttention, distance_bias=bias, causal=causal)
