"""RPE: fairseq's Transformer with relative self-attention, and its architectures."""

from functools import partial

from ..modules.relative_attention import RelativeMultiheadAttention
from .architectures import Option, register
from .relative_positions import RelativePositionsModel


@register("rpe")
class TransformerRPEModel(RelativePositionsModel):
    """A Transformer that learns keys and values of distances (Shaw et al., 2018)."""

    options = (
        Option(
            "--max-relative-distance",
            "L",
            "distances beyond L are not told apart from L",
        ),
    )

    @classmethod
    def attention_builder(cls, cfg, side, causal):
        return partial(
            RelativeMultiheadAttention,
            max_relative_distance=cfg.max_relative_distance,
            causal=causal,
        )
