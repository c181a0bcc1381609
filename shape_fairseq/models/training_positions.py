"""What SHAPE, CAPE and randomized positions share: fairseq's model with other position embeddings.

They change positions of training batches and nothing else. The state dict is that of fairseq's own
`transformer`, and so is what the model computes when it does not train.
"""

from argparse import Namespace

from ..errors import OptionError
from ..modules.positions import TrainingPositionalEmbedding
from .architectures import ExtendedTransformerModel


class TrainingPositionsModel(ExtendedTransformerModel):
    """A Transformer whose sinusoidal positions change while it trains."""

    positions: type[TrainingPositionalEmbedding]  # takes this model's options, in their order

    @classmethod
    def build_model(cls, args: Namespace, task):
        """Build fairseq's model and exchange only its position embeddings."""
        cls.check_options(args)
        model = super().build_model(args, task)
        for side in (model.encoder, model.decoder):
            side.embed_positions = cls.positions.like(
                side.embed_positions, *cls.option_values(args)
            )
        return model

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse, before any work is done, options that leave no sinusoidal positions to change."""
        super().check_options(args)
        changes = f"{cls.entry.title} changes sinusoidal positions"
        if getattr(args, "no_token_positional_embeddings", False):
            raise OptionError(f"{changes}: drop --no-token-positional-embeddings")
        for side in ("encoder", "decoder"):
            if getattr(args, f"{side}_learned_pos", False):
                raise OptionError(f"{changes}: drop --{side}-learned-pos")
            if (width := getattr(args, f"{side}_embed_dim", 2)) % 2:
                raise OptionError(
                    f"sinusoidal positions need an even width: --{side}-embed-dim is {width}"
                )
