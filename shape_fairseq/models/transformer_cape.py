"""CAPE: fairseq's Transformer with shifted and scaled real positions, and its architectures."""

from ..modules.cape import CAPESinusoidalPositionalEmbedding
from .architectures import Option, register
from .training_positions import TrainingPositionsModel


@register("cape")
class TransformerCapeModel(TrainingPositionsModel):
    """A Transformer that sees continuous augmented positions (Likhomanenko et al., 2021)."""

    positions = CAPESinusoidalPositionalEmbedding
    options = (
        Option(
            "--max-global-shift",
            "SHIFT",
            "shift every training sequence by up to ± SHIFT positions",
        ),
        Option(
            "--max-local-shift",
            "SHIFT",
            "shift every token of it by up to ± SHIFT; 0.5 keeps their order",
        ),
        Option(
            "--max-global-scale",
            "FACTOR",
            "stretch or squeeze the positions of a sequence by up to this factor",
            minimum=1,
        ),
    )
