"""SHAPE: fairseq's Transformer with shifted sinusoidal positions, and its architectures."""

from ..modules.positions import ShiftedSinusoidalPositionalEmbedding
from .architectures import Option, register
from .training_positions import TrainingPositionsModel


@register("shape")
class TransformerShapeModel(TrainingPositionsModel):
    """A Transformer whose positions are shifted at random while it trains (Kiyono et al., 2021)."""

    positions = ShiftedSinusoidalPositionalEmbedding
    options = (
        Option(
            "--max-shift",
            "K",
            "shift the positions of every training sequence by a random k of 0 to K;"
            " 0 is fairseq's own transformer",
        ),
        Option(
            "--shift-warmup-updates",
            "N",
            "let K grow from 0 over the first N updates, which a short training learns more from",
        ),
    )
