"""RPE: fairseq's Transformer with relative self-attention, and its architectures."""

from functools import partial

from ..errors import OptionError
from ..modules.fused_attention import CHOICES
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
            implementation=cfg.relative_attention,
            causal=causal,
        )

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        parser.add_argument(
            "--relative-attention",
            default=CHOICES[0],
            choices=CHOICES,
            help="RPE: how attention is computed, with the same result; auto takes the fused GPU"
            " kernels where there are some and they pass a check (default: auto)",
        )

    @classmethod
    def check_options(cls, args):
        super().check_options(args)
        args.relative_attention = getattr(args, "relative_attention", None) or CHOICES[0]
        if args.relative_attention not in CHOICES:
            raise OptionError(
                f"--relative-attention must be {', '.join(CHOICES[:-1])} or {CHOICES[-1]},"
                f" got {args.relative_attention}"
            )
