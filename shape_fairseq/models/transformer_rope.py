"""RoPE: fairseq's Transformer with rotated queries and keys, and its architectures."""

from argparse import Namespace
from functools import partial

from ..errors import OptionError
from ..modules.rotary_attention import RotarySelfAttention
from .architectures import Option, register
from .relative_positions import RelativePositionsModel


@register("rope")
class TransformerRoPEModel(RelativePositionsModel):
    """A Transformer whose queries and keys turn with their position (Su et al., 2021)."""

    options = (
        Option(
            "--rotary-base",
            "BASE",
            "pair j of a head's width turns by position * BASE^(-2j/width)",
            minimum=1,
        ),
    )

    @classmethod
    def attention_builder(cls, cfg, side, causal):
        return partial(RotarySelfAttention, base=cfg.rotary_base, causal=causal)

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse heads of an odd width too: RoPE turns pairs."""
        super().check_options(args)
        for side in ("encoder", "decoder"):
            width = getattr(args, f"{side}_embed_dim", 2)
            heads = getattr(args, f"{side}_attention_heads", 1)
            if width % (2 * heads):
                raise OptionError(
                    f"RoPE needs heads of an even width: --{side}-embed-dim is {width}"
                    f" and --{side}-attention-heads {heads}"
                )
