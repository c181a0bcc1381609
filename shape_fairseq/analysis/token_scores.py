"""Figure 4: where does the second model give gold tokens a higher probability than the first?"""

from collections import Counter
from pathlib import Path

import torch
from fairseq import utils

from ..command_line import positive
from ..errors import UserError
from ..files import progress_bar, read_lines
from . import base, figures
from .buckets import Buckets
from .compute.models import DataBin, batches, device, load_for_inference

NAME = "token-scores"
FEWEST = 100  # tokens in the last bucket of positions


def training_frequencies(data: DataBin) -> list[int]:
    """How often each symbol of the dictionary occurs in the target side of the training text."""
    path = data.data / "text" / data.folder.name / "train.de"
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
    where = next(model.parameters()).device
    scores = {}
    for numbers, batch in batches(dataset, list(range(len(dataset))), max_tokens, title):
        batch = utils.move_to_cuda(batch) if where.type == "cuda" else batch
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
    where: torch.device,
    width: int | None = None,
) -> dict:
    """The ratio of tokens that the second model scores higher, by position and frequency.

    The end of sentence is no word of the reference and is left out.
    """
    frequencies = training_frequencies(data)
    first, second = (
        gold_scores(load_for_inference(path, data, where), data, subset, max_tokens, label)
        for label, path in models.items()
    )
    dataset = data.subset(subset)
    lengths = [int(size) - 1 for size in dataset.tgt_sizes]
    # Positions from 1 on; a bucket for each is a bucket of how many sequences reach it.
    positions = (place for length in lengths for place in range(1, length + 1))
    columns = Buckets.over(positions, trained, width, FEWEST)
    rows = 1 + frequency_bucket(max(frequencies))
    cells = [[Tally() for _ in columns.ends] for _ in range(rows)]
    parts = {name: Tally() for name in ("all", "trained", "untrained")}
    by_frequency = [Tally() for _ in range(rows)]
    for number in range(len(dataset)):
        tokens = dataset[number]["target"].tolist()[:-1]
        higher = (second[number] > first[number]).tolist()[:-1]
        for position, (token, better) in enumerate(zip(tokens, higher, strict=True), start=1):
            row = frequency_bucket(frequencies[token])
            part = "untrained" if trained is not None and position > trained else "trained"
            for tally in (
                cells[row][columns.number(position)],
                by_frequency[row],
                parts["all"],
                parts[part],
            ):
                tally.add(better)
    if not parts["all"].tokens:
        raise UserError(f"the subset {subset} of {data.folder} has no target tokens")
    return {
        "setting": data.folder.name,
        "models": list(models),
        "trained_length": trained,
        "positions": columns.names(),
        "untrained_positions": columns.untrained(trained),
        "frequencies": frequency_names(rows),
        "cells": [[tally.result() for tally in row] for row in cells],
        "by_frequency": [tally.result() for tally in by_frequency],
        **{name: tally.result() for name, tally in parts.items()},
        "mean_log_probability": {
            label: float(torch.cat([row[:-1] for row in scores.values()]).mean())
            for label, scores in zip(models, (first, second), strict=True)
        },
    }


def plot(result: dict) -> dict:
    """The heat map of figure 4 with the number of tokens in every cell."""
    baseline, compared = map(figures.title, result["models"])
    cells, columns = result["cells"], len(result["positions"])
    figure, axis = figures.subplots(
        figsize=(max(5.5, 1.6 + 0.72 * columns), 1.4 + 0.48 * len(cells))
    )
    values = [[cell["ratio"] for cell in row] for row in cells]
    texts = [
        [f"{cell['ratio']:.2f}\nn={cell['tokens']}" if cell["tokens"] else "–" for cell in row]
        for row in cells
    ]
    mesh = figures.heat_map(axis, values, texts, cmap="PuOr_r", vmin=0, vmax=1)
    if any(result["untrained_positions"]):
        untrained = result["untrained_positions"].index(True)
        axis.axvline(untrained, color="#333333", linewidth=1.4)
        axis.text(
            *(untrained + 0.08, 1.01, "no training data →"),
            transform=axis.get_xaxis_transform(),
            fontsize=7.5,
            color="#555555",
        )
    axis.set_xticklabels(result["positions"], fontsize=7, rotation=35, ha="right")
    axis.set_yticklabels(result["frequencies"], fontsize=7)
    axis.set_xlabel("position in the target")
    axis.set_ylabel("times in training data")
    name = (
        f"{result['setting'].upper()}: where {compared} scores gold tokens higher than {baseline}"
    )
    axis.set_title(name, pad=16)
    figure.colorbar(mesh, ax=axis, label="ratio of tokens", pad=0.01)
    return {NAME: figure}


def main(arguments: list[str]) -> None:
    """Teacher-forced scores of gold tokens under two models (figure 4)."""
    parser = base.command(NAME, main.__doc__)
    base.add_models(parser)
    base.add_subset(parser, setting="extrapolate")
    parser.add_argument(
        "--trained-length",
        type=positive,
        metavar="N",
        help="positions beyond it are marked (default: the limit of EXTRAPOLATE)",
    )
    parser.add_argument("--width", type=positive, help="of a bucket of positions")
    args = parser.parse_args(arguments)
    models = base.checkpoints(args.models)
    if len(models) != 2:
        raise UserError(f"two models are compared, ape=FILE shape=FILE; {len(models)} given")
    base.check_new(args.out, NAME)
    data = DataBin(args.data, args.setting)
    trained = args.trained_length or base.trained_length(args.data, args.setting)
    signed = base.signature(
        *(args.data, models),
        setting=args.setting,
        subset=args.subset,
        trained_length=trained,
        width=args.width,
    )
    result = compute(
        *(data, args.subset, models, trained, args.max_tokens, device(args.cpu)), args.width
    )
    base.publish(args.out, NAME, signed, result, plot(result))
    baseline, compared = map(figures.title, result["models"])
    places = {"all": "gold tokens"}
    if trained is not None:
        places |= {"trained": "at trained positions", "untrained": "beyond trained positions"}
    for part, place in places.items():
        if (found := result[part])["tokens"]:
            print(
                f"{compared} scores {found['ratio']:.1%} of {found['tokens']:,} {place} higher"
                f" than {baseline}"
            )
