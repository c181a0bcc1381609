"""Table 1: how much BLEU of the first sentence is lost when it is moved to the end."""

from pathlib import Path

import torch
from sacrebleu.metrics import BLEU

from ..command_line import positive
from ..errors import UserError
from ..evaluation import results
from ..evaluation.scoring import count_separators, read_text
from ..evaluation.tables import Table
from ..text.detokenize import detokenize_joined
from ..text.separator import SEPARATOR, split_joined
from . import base, figures
from .compute.models import DataBin, Search, device, load_for_inference, spread, translate

NAME = "swap"
# X1 ... Xn and X2 ... Xn, X1: where the sentence is that is compared.
PLACES = {"original": 0, "swapped": -1}
PAPER = {"ape": (28.81, 20.74, 8.07), "shape": (28.51, 27.06, 1.45)}


def read_references(data: DataBin, order: str) -> list[list[str]]:
    """The sentences of every target sequence in this order."""
    path = data.data / "reference" / data.folder.name / f"{order}.de"
    references = [split_joined(line) for line in read_text(path)]
    if data.dictionary.index(SEPARATOR) == data.dictionary.unk() or min(map(len, references)) < 2:
        raise UserError(f"{path} has sequences without {SEPARATOR}: nothing was joined there")
    return references


def check_setting(path: Path) -> None:
    """Only models of INTERPOLATE have learned what <sep> is."""
    recipe = path.parent / "recipe.txt"
    if recipe.exists() and (setting := results.read_parameters(recipe)["SETTING"]) != "interpolate":
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
    where: torch.device,
) -> dict:
    """Both orders translated by every model; BLEU of Y1' and the drop."""
    references = {order: read_references(data, order) for order in PLACES}
    for order in PLACES:
        if len(data.subset(order)) != len(references[order]):
            raise UserError(f"{data.folder} and its reference differ in {order}: make it again")
    indices = spread(len(references["original"]), sequences)
    metric = BLEU()
    found = {}
    for path in models.values():
        check_setting(path)
    for label, path in models.items():
        model = load_for_inference(path, data, where)
        scores, separators, lines = {}, {}, {}
        for order, place in PLACES.items():
            texts = translate(
                *(model, data, order, indices, search, max_tokens), title=f"{label} {order}"
            )
            hypotheses = [detokenize_joined(texts[index], "de") for index in indices]
            wanted = [references[order][index] for index in indices]
            lines[order] = at(place, hypotheses)
            scores[order] = metric.corpus_score(lines[order], [at(place, wanted)]).score
            separators[order] = count_separators(hypotheses, wanted)
        drop = scores["original"] - scores["swapped"]
        found[label] = {"bleu": scores, "drop": drop, "separators": separators, "sentences": lines}
    return {
        "sequences": len(indices),
        "sacrebleu": metric.get_signature().format(),
        "references": [references["original"][index][0] for index in indices],
        "models": found,
    }


def plot(result: dict) -> dict:
    """Both orders side by side for each model, with the drop above."""
    labels = list(result["models"])
    figure, axis = figures.subplots(figsize=(1.6 + 1.5 * len(labels), 3))
    for place, label in enumerate(labels):
        found = result["models"][label]
        colour = figures.colour(label, labels)
        for shift, (order, score) in zip((-0.2, 0.2), found["bleu"].items(), strict=True):
            faint = 1.0 if order == "original" else 0.55
            bars = axis.bar(place + shift, score, 0.37, color=colour, alpha=faint)
            axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=1)
            axis.text(
                *(place + shift, -0.02, order),
                ha="center",
                va="top",
                fontsize=7.5,
                transform=axis.get_xaxis_transform(),
            )
    axis.set_xticks(
        range(len(labels)),
        # + 0.0: no drop is not written as "-0.0".
        [
            f"\n{figures.title(name)}: drop {round(result['models'][name]['drop'], 1) + 0.0}"
            for name in labels
        ],
        fontweight="bold",
    )
    axis.tick_params(axis="x", length=0)
    axis.set_ylabel("BLEU of $Y_1'$")
    axis.margins(y=0.12)
    axis.set_title(f"First sentence in place and moved to the end, {result['sequences']:,} seq.")
    return {NAME: figure}


def table(result: dict) -> Table:
    """Table 1, with the paper's numbers where it has some."""
    rows = []
    for label, found in result["models"].items():
        ours = (*found["bleu"].values(), found["drop"])
        for source, numbers in (("ours", ours), ("paper", PAPER.get(label))):
            if numbers:
                rows.append([figures.title(label), source, *(f"{one:.2f}" for one in numbers)])
    counts = "; ".join(
        f"{figures.title(label)} {found['separators']['swapped']['missing']}"
        for label, found in result["models"].items()
    )
    expected = next(iter(result["models"].values()))["separators"]["swapped"]["expected"]
    return Table(
        f"Table 1: BLEU of the first sentence on {result['sequences']:,} training sequences",
        ["Model", "Source", "Original", "Swapped", "Drop"],
        rows,
        [f"<sep> missing in the swapped order, of {expected:,}: {counts}."],
    )


def main(arguments: list[str]) -> None:
    """BLEU of the first sentence in original and in swapped order (table 1)."""
    parser = base.command(NAME, main.__doc__)
    base.add_models(parser)
    parser.add_argument(
        "--sequences", type=positive, default=10_000, help="of DATA/swapped (default: 10000)"
    )
    Search.add_options(parser)
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    models, search = base.checkpoints(args.models), Search.of(args)
    data = DataBin(args.data, "swapped")
    signed = base.signature(args.data, models, sequences=args.sequences, **vars(search))
    result = compute(data, models, args.sequences, search, args.max_tokens, device(args.cpu))
    base.publish(args.out, NAME, signed, result, plot(result))
    for label, found in result["models"].items():
        original, swapped = found["bleu"]["original"], found["bleu"]["swapped"]
        print(
            f"{figures.title(label)}: BLEU {original:.2f} original, {swapped:.2f} swapped,"
            f" drop {found['drop']:.2f}"
        )
