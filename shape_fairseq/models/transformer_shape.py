"""SHAPE: fairseq's Transformer with shifted sinusoidal positions, and its architectures."""

from argparse import ArgumentParser, Namespace

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from ..errors import OptionError
from ..modules.positions import ShiftedSinusoidalPositionalEmbedding
from .architectures import non_negative_int, register_sizes

DEFAULT_MAX_SHIFT = 500  # the paper's, robust at its scale; small models learn faster with less


@register_model("transformer_shape")
class TransformerShapeModel(TransformerModel):
    """A Transformer whose positions are shifted at random while it trains (Kiyono et al., 2021)."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add --max-shift to fairseq's own options."""
        super().add_args(parser)
        parser.add_argument(
            "--max-shift",
            default=DEFAULT_MAX_SHIFT,
            metavar="K",
            help="SHAPE: shift the positions of every training sequence by a random k of 0 to K;"
            f" 0 is fairseq's own transformer (default: {DEFAULT_MAX_SHIFT})",
        )

    @classmethod
    def build_model(cls, args: Namespace, task):
        """Build fairseq's model and exchange only its position embeddings."""
        check_options(args)
        model = super().build_model(args, task)
        for side in (model.encoder, model.decoder):
            side.embed_positions = ShiftedSinusoidalPositionalEmbedding.like(
                side.embed_positions, args.max_shift
            )
        return model


def check_options(args: Namespace) -> None:
    """Refuse, before any work is done, options that leave nothing to shift."""
    args.max_shift = non_negative_int(args, "--max-shift", DEFAULT_MAX_SHIFT)
    if getattr(args, "no_token_positional_embeddings", False):
        raise OptionError("SHAPE shifts positions: drop --no-token-positional-embeddings")
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_learned_pos", False):
            raise OptionError(f"SHAPE shifts sinusoidal positions: drop --{side}-learned-pos")
        if (width := getattr(args, f"{side}_embed_dim", 2)) % 2:
            raise OptionError(
                f"sinusoidal positions need an even width: --{side}-embed-dim is {width}"
            )


register_sizes("transformer_shape", check_options)
