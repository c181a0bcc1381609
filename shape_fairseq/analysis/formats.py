"""What the JSON file of each analysis holds, for those who read it: claims and the report."""

from typing import Any, TypedDict

from ..evaluation.results import Separators

Matrix = list[list[float]]  # offset x offset


class SimilarityOfModel(TypedDict):
    sequences: list[list[Matrix]]  # sequence x layer
    mean: float


class Similarity(TypedDict):
    offsets: list[int]
    models: dict[str, SimilarityOfModel]


class Orders(TypedDict):
    original: float
    swapped: float


class SeparatorsOfOrders(TypedDict):
    original: Separators
    swapped: Separators


class Sentences(TypedDict):
    original: list[str]
    swapped: list[str]


class SwapOfModel(TypedDict):
    bleu: Orders
    drop: float
    separators: SeparatorsOfOrders
    sentences: Sentences


class Swap(TypedDict):
    sequences: int
    references: list[str]
    models: dict[str, SwapOfModel]


Part = str  # all, trained or untrained lengths


class LengthBLEUOfModel(TypedDict):
    seeds: dict[Part, list[float]]  # BLEU of each seed; none of a part without sequences
    # To the models before this one, of which APE is the first: the fields of bootstrap.Difference.
    differences: dict[Part, dict[str, dict[str, Any]]]


class LengthBLEU(TypedDict):
    setting: str
    trained_length: int | None
    sequences: dict[Part, int]
    models: dict[str, LengthBLEUOfModel]


class Tally(TypedDict):
    tokens: int
    ratio: float | None


class TokenScores(TypedDict):
    models: list[str]
    by_sequence: dict[str, list[tuple[int, int]]]  # "rare": [(tokens, scored higher), ...]
    all: Tally
    trained: Tally
    untrained: Tally


class Timing(TypedDict):
    seconds: float
    speed: float
    turns: list[float]


class SpeedOfModel(TypedDict):
    training: Timing
    generation: Timing
    step_memory: float
    parameters: int


class Speed(TypedDict):
    setting: str
    device: str
    models: dict[str, SpeedOfModel]


RESULTS: dict[str, Any] = {
    "similarity": Similarity,
    "swap": Swap,
    "length-bleu": LengthBLEU,
    "token-scores": TokenScores,
    "speed": Speed,
    "curves": dict[str, Any],
    "lengths": dict[str, Any],
}
