"""Randomized positions: fairseq's Transformer at random subsets of a range; its architectures."""

from ..modules.randomized_positions import RandomizedSinusoidalPositionalEmbedding
from .architectures import Option, register
from .training_positions import TrainingPositionsModel


@register("randomized")
class TransformerRandomizedModel(TrainingPositionsModel):
    """A Transformer trained at ordered random positions of a longer range (Ruoss et al., 2023)."""

    positions = RandomizedSinusoidalPositionalEmbedding
    options = (
        Option(
            "--position-range",
            "L",
            "a training sequence stands at random positions of 0 to L - 1, in order;"
            " batches longer than L stay where they are, 0 is fairseq's own transformer",
        ),
    )
