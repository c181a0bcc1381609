"""CAPE: fairseq's Transformer with shifted and scaled real positions, and its architectures."""

from ..modules.cape import CAPESinusoidalPositionalEmbedding
from .architectures import Option, number_of_at_least, register
from .training_positions import TrainingPositionsModel


@register("transformer_cape")
class TransformerCapeModel(TrainingPositionsModel):
    """A Transformer that sees continuous augmented positions (Likhomanenko et al., 2021)."""

    title = "CAPE"
    positions = CAPESinusoidalPositionalEmbedding
    options = (
        Option(
            "--max-global-shift",
            5.0,
            "SHIFT",
            "shift every training sequence by up to ± SHIFT positions",
            number_of_at_least(0),
        ),
        Option(
            "--max-local-shift",
            0.5,
            "SHIFT",
            "shift every token of it by up to ± SHIFT; 0.5 keeps their order",
            number_of_at_least(0),
        ),
        Option(
            "--max-global-scale",
            1.03,
            "FACTOR",
            "stretch or squeeze the positions of a sequence by up to this factor",
            number_of_at_least(1),
        ),
    )
