"""Teacher-forced scores of gold tokens under two models."""

from collections import Counter
from pathlib import Path

import torch

from ...data_folder import text_path
from ...errors import UserError
from ...files import progress_bar, read_lines
from ..buckets import Buckets
from .models import DataBin, batches, load_for_inference, to_device

FEWEST = 100  # tokens in the last bucket of positions
RARE_BELOW = 100  # times in the training data: the first three rows of figure 4


def training_frequencies(data: DataBin) -> list[int]:
    """How often each symbol of the dictionary occurs in the target side of the training text."""
    path = text_path(data.data, data.setting, "train", data.target_lang)
    total: Counter = Counter()
    with progress_bar(f"count {path}", path) as bar:
        for line in read_lines(path):
            total.update(line.split())
            bar.update()
    return [total[symbol.encode()] for symbol in data.dictionary.symbols]


def gold_scores(
    model, data: DataBin, subset: str, max_tokens: int, title: str
) -> dict[int, torch.Tensor]:
    """Log probabilities of the gold tokens of each sequence, the end of sentence included."""
    dataset = data.subset(subset)
    device = next(model.parameters()).device
    scores = {}
    for numbers, batch in batches(dataset, list(range(len(dataset))), max_tokens, title):
        batch = to_device(batch, device)
        with torch.no_grad():
            output = model(**batch["net_input"])
            log_probs = model.get_normalized_probs(output, log_probs=True)
        gold = log_probs.gather(-1, batch["target"].unsqueeze(-1)).squeeze(-1)  # batch x length
        for number, row in zip(numbers, gold.float().cpu(), strict=True):
            scores[number] = row[: dataset.tgt_sizes[number]]
    return scores


def frequency_bucket(frequency: int) -> int:
    """0 for unseen, then one for each number of digits."""
    return len(str(frequency)) if frequency else 0


def frequency_names(number: int) -> list[str]:
    ranges = [f"{10**digits:,}–{10 ** (digits + 1) - 1:,}" for digits in range(number - 1)]
    return ["unseen", *ranges][:number]


class Tally:
    """How many tokens there are, and how many of them the second model scores higher."""

    def __init__(self):
        self.tokens = self.higher = 0

    def add(self, higher: bool) -> None:
        self.tokens += 1
        self.higher += higher

    def result(self) -> dict:
        return {"tokens": self.tokens, "ratio": self.higher / self.tokens if self.tokens else None}


def compute(
    data: DataBin,
    subset: str,
    models: dict[str, Path],
    trained: int | None,
    max_tokens: int,
    device: torch.device,
    width: int | None = None,
) -> dict:
    """The ratio of tokens that the second model scores higher, by position and frequency.

    The end of sentence is no word of the reference and is left out.
    """
    frequencies = training_frequencies(data)
    first, second = (
        gold_scores(load_for_inference(path, data, device), data, subset, max_tokens, label)
        for label, path in models.items()
    )
    dataset = data.subset(subset)
    lengths = [int(size) - 1 for size in dataset.tgt_sizes]
    # Positions from 1 on; a bucket for each is a bucket of how many sequences reach it.
    positions = (place for length in lengths for place in range(1, length + 1))
    if not any(lengths):
        raise UserError(f"the subset {subset} of {data.folder} has no target tokens")
    columns = Buckets.over(positions, trained, width, FEWEST)
    rows = 1 + frequency_bucket(max(frequencies))
    cells = [[Tally() for _ in columns.ends] for _ in range(rows)]
    parts = {name: Tally() for name in ("all", "trained", "untrained")}
    by_frequency = [Tally() for _ in range(rows)]
    by_sequence: dict[str, list[Tally]] = {"all": [], "untrained": [], "rare": []}
    for number in range(len(dataset)):
        tokens = dataset[number]["target"].tolist()[:-1]
        higher = (second[number] > first[number]).tolist()[:-1]
        of_sequence = {name: Tally() for name in by_sequence}
        for position, (token, better) in enumerate(zip(tokens, higher, strict=True), start=1):
            row = frequency_bucket(frequencies[token])
            untrained = trained is not None and position > trained
            tallies = [cells[row][columns.number(position)], by_frequency[row], parts["all"]]
            tallies += [parts["untrained" if untrained else "trained"], of_sequence["all"]]
            if untrained:
                tallies.append(of_sequence["untrained"])
            if frequencies[token] < RARE_BELOW:
                tallies.append(of_sequence["rare"])
            for tally in tallies:
                tally.add(better)
        for name, tally in of_sequence.items():
            by_sequence[name].append(tally)
    return {
        "setting": data.setting,
        "models": list(models),
        "trained_length": trained,
        "positions": columns.names(),
        "untrained_positions": columns.untrained(trained),
        "frequencies": frequency_names(rows),
        "cells": [[tally.result() for tally in row] for row in cells],
        "by_frequency": [tally.result() for tally in by_frequency],
        # Tokens of a sentence are not independent: chance is judged by sequence.
        "by_sequence": {
            name: [[tally.tokens, tally.higher] for tally in tallies]
            for name, tallies in by_sequence.items()
        },
        **{name: tally.result() for name, tally in parts.items()},
        "mean_log_probability": {
            label: float(torch.cat([row[:-1] for row in scores.values()]).mean())
            for label, scores in zip(models, (first, second), strict=True)
        },
    }
