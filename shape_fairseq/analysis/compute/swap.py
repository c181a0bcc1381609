"""The same sentences translated as the first and as the last of their sequences."""

from pathlib import Path

import torch

from ...data_folder import read_text, reference_path
from ...errors import UserError
from ...evaluation import metrics
from ...evaluation.scoring import count_separators
from ...evaluation.training_folder import RECIPE, read_recipe
from ...search import Search
from ...text.detokenize import detokenize_joined
from ...text.separator import SEPARATOR, split_joined
from .models import DataBin, load_for_inference, spread, translate

# X1 ... Xn and X2 ... Xn, X1: where the sentence is that is compared.
PLACES = {"original": 0, "swapped": -1}


def read_references(data: DataBin, order: str) -> list[list[str]]:
    """The sentences of every target sequence in this order."""
    path = reference_path(data.data, data.setting, order, data.target_lang)
    references = [split_joined(line) for line in read_text(path)]
    if data.dictionary.index(SEPARATOR) == data.dictionary.unk() or min(map(len, references)) < 2:
        raise UserError(f"{path} has sequences without {SEPARATOR}: nothing was joined there")
    return references


def check_setting(path: Path) -> None:
    """Only models of INTERPOLATE have learned what <sep> is."""
    if not (path.parent / RECIPE).exists():
        return
    setting = read_recipe(path.parent).setting
    if setting != "interpolate":
        raise UserError(f"{path} was trained on {setting}: swap compares INTERPOLATE models")


def at(place: int, sequences: list[list[str]]) -> list[str]:
    """The sentence at one end of every sequence.

    Counted from that end, so that a <sep> that a model forgets elsewhere costs neither order.
    """
    return [sentences[place] for sentences in sequences]


def compute(
    data: DataBin,
    models: dict[str, Path],
    sequences: int,
    search: Search,
    max_tokens: int,
    device: torch.device,
) -> dict:
    """Both orders translated by every model; BLEU of Y1' and the drop."""
    references = {order: read_references(data, order) for order in PLACES}
    for order in PLACES:
        if len(data.subset(order)) != len(references[order]):
            raise UserError(f"{data.folder} and its reference differ in {order}: make it again")
    indices = spread(len(references["original"]), sequences)
    metric = metrics.bleu()
    translated = {}
    for path in models.values():
        check_setting(path)
    for label, path in models.items():
        model = load_for_inference(path, data, device)
        scores, separators, lines = {}, {}, {}
        for order, place in PLACES.items():
            title = f"{label} {order}"
            texts = translate(model, data, order, indices, search, max_tokens, title)
            hypotheses = [detokenize_joined(texts[index], data.target_lang) for index in indices]
            wanted = [references[order][index] for index in indices]
            lines[order] = at(place, hypotheses)
            scores[order] = metric.score(lines[order], at(place, wanted))
            separators[order] = count_separators(hypotheses, wanted)
        translated[label] = {
            "bleu": scores,
            "drop": scores["original"] - scores["swapped"],
            "separators": separators,
            "sentences": lines,
        }
    return {
        "sequences": len(indices),
        "sacrebleu": metric.signature(),
        "references": [references["original"][index][0] for index in indices],
        "models": translated,
    }
