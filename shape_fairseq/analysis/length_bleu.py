"""Figure 3 and appendix D: BLEU by source length, and its improvement over APE."""

import dataclasses
import logging
import statistics
from collections.abc import Iterable
from pathlib import Path

from sacrebleu.metrics import BLEU

from ..command_line import positive
from ..errors import UserError
from ..evaluation import results, significance
from ..evaluation.results import Result
from ..evaluation.scoring import read_text
from ..files import sha256
from . import base, figures
from .buckets import Buckets

NAME = "length-bleu"
BASELINE = "ape"
FEWEST = 10  # sequences in the last bucket: BLEU of fewer says nothing

# sacreBLEU tells of every step of its bootstrap.
logging.getLogger("sacrebleu").setLevel(logging.WARNING)

Sequence = tuple[str, int]  # a subset and a place in it


def label_of(result: Result) -> str:
    """ape, rpe, shape, or shape-k40."""
    model, max_shift = result.variant
    return model if max_shift is None else f"{model}-k{max_shift}"


def by_label(found: list[Result]) -> dict[str, list[Result]]:
    """The seeds of every model; all must be of one setting and translate the same text."""
    if len({result.setting for result in found}) > 1:
        raise UserError("results of several settings: give those of one")
    if any(result.references != found[0].references for result in found):
        raise UserError("the results are of different test sets: give those of one")
    labels: dict[str, list[Result]] = {}
    for result in found:
        labels.setdefault(label_of(result), []).append(result)
    if BASELINE not in labels:
        raise UserError("no result of APE, with which the others are compared")
    shapes = [label for label in labels if label.startswith("shape")]
    if len(shapes) == 1:  # one SHAPE needs no maximum shift to be told from the others
        labels = {("shape" if name in shapes else name): ones for name, ones in labels.items()}
    return {name: labels[name] for name in sorted(labels, key=lambda name: (name != "ape", name))}


def source_lengths(data: Path, setting: str, found: Result) -> dict[Sequence, int]:
    """The source length in subwords of every sequence that was translated."""
    lengths = {}
    folder = data / "text" / ("vanilla" if setting == "scaling_nmt" else setting)
    for subset, references in found.references.items():
        lines = read_text(folder / f"{subset}.en")
        if len(lines) != len(references):
            raise UserError(f"{folder}/{subset}.en has not as many lines as the results have")
        lengths |= {(subset, place): len(line.split()) for place, line in enumerate(lines)}
    return lengths


def bleu(found: list[Result], sequences: Iterable[Sequence]) -> float | None:
    """BLEU of some sequences of all subsets, the mean of the seeds; none without sequences."""
    sequences = list(sequences)
    if not sequences:
        return None
    references = [found[0].references[subset][place] for subset, place in sequences]
    return statistics.fmean(
        BLEU()
        .corpus_score([one.hypotheses[subset][place] for subset, place in sequences], [references])
        .score
        for one in found
    )


def p_values(labels: dict[str, list[Result]], sequences: list[Sequence]) -> dict[str, float]:
    """Paired bootstrap of the first seeds against APE's on some sequences."""

    def only(result: Result) -> Result:
        hypotheses, references = (
            {"some": [side[subset][place] for subset, place in sequences]}
            for side in (result.hypotheses, result.references)
        )
        return dataclasses.replace(
            result, groups={"some": ["some"]}, hypotheses=hypotheses, references=references
        )

    others = [label for label in labels if label != BASELINE]
    if not sequences or not others:
        return {}
    baseline, *compared = (only(labels[label][0]) for label in (BASELINE, *others))
    _, *rows = significance.compare(baseline, compared, "some", significance.DEFAULT_SAMPLES)
    return {label: row["p_value"] for label, row in zip(others, rows, strict=True)}


def compute(found: list[Result], data: Path, trained: int | None, width: int | None = None) -> dict:
    """BLEU of every model in buckets of lengths, within and beyond the trained lengths."""
    labels = by_label(found)
    lengths = source_lengths(data, found[0].setting, found[0])
    buckets = Buckets.over(lengths.values(), trained, width, FEWEST)
    members: list[list[Sequence]] = [[] for _ in buckets.ends]
    for sequence, length in lengths.items():
        members[buckets.number(length)].append(sequence)
    parts: dict[str, list[Sequence]] = {"all": list(lengths)}
    if trained is not None:
        parts["trained"] = [one for one, length in lengths.items() if length <= trained]
        parts["untrained"] = [one for one, length in lengths.items() if length > trained]
    chances = p_values(labels, parts.get("untrained", []))
    return {
        "setting": found[0].setting,
        "trained_length": trained,
        "buckets": [
            {"lengths": name, "sequences": len(inside), "untrained": untrained}
            for name, inside, untrained in zip(
                buckets.names(), members, buckets.untrained(trained), strict=True
            )
        ],
        "sequences": {part: len(inside) for part, inside in parts.items()},
        "models": {
            label: {
                "seeds": len(ones),
                "bleu": [bleu(ones, inside) for inside in members],
                **{part: bleu(ones, inside) for part, inside in parts.items()},
                "untrained_p_value": chances.get(label),
            }
            for label, ones in labels.items()
        },
        "sacrebleu": found[0].signature["sacrebleu"],
    }


def _shade_untrained(axis, buckets: list[dict]) -> None:
    untrained = [place for place, bucket in enumerate(buckets) if bucket["untrained"]]
    if untrained:
        start, end = untrained[0] - 0.5, untrained[-1] + 0.5
        axis.axvspan(start, end, color=figures.UNTRAINED, zorder=0)
        axis.text(
            *(end, 1.01, "no training data"),
            transform=axis.get_xaxis_transform(),
            ha="right",
            fontsize=7.5,
            color="#555555",
        )
    axis.set_xlim(-0.5, len(buckets) - 0.5)


def plot(result: dict) -> dict:
    """The improvement over APE (figure 3) above the absolute scores (appendix D)."""
    buckets, models = result["buckets"], result["models"]
    labels = list(models)
    figure, (improvement, absolute) = figures.subplots(
        2, 1, figsize=(max(5.5, 0.75 * len(buckets)), 5.4), sharex=True
    )
    others = [label for label in labels if label != BASELINE]
    filled = [place for place, bucket in enumerate(buckets) if bucket["sequences"]]
    for number, label in enumerate(others):
        width = 0.8 / len(others)
        gains = [models[label]["bleu"][at] - models[BASELINE]["bleu"][at] for at in filled]
        places = [at - 0.4 + (number + 0.5) * width for at in filled]
        colour = figures.colour(label, labels)
        improvement.bar(places, gains, width * 0.92, color=colour, label=figures.title(label))
    improvement.axhline(0, color="#333333", linewidth=0.8)
    improvement.set_ylabel("BLEU improvement over APE")
    improvement.set_title(f"{result['setting'].upper()}: BLEU by source length", loc="left")
    for label in labels:
        absolute.plot(
            filled,
            [models[label]["bleu"][place] for place in filled],
            color=figures.colour(label, labels),
            marker=figures.marker(label),
            label=figures.title(label),
        )
    absolute.set_ylabel("BLEU")
    absolute.set_ylim(bottom=0)
    absolute.set_xticks(
        range(len(buckets)),
        [f"{bucket['lengths']}\nn={bucket['sequences']}" for bucket in buckets],
        fontsize=7.5,
    )
    absolute.set_xlabel("source length in subwords, number of sequences")
    for axis in (improvement, absolute):
        axis.grid(axis="y")
        axis.margins(y=0.15)
        _shade_untrained(axis, buckets)
        axis.legend(ncols=len(labels))
    return {NAME: figure}


def check_data(found: list[Result], data: Path) -> None:
    dictionary = sha256(data / "dict.txt")
    if any(result.signature["data"]["dictionary"] != dictionary for result in found):
        raise UserError(f"the results are of other data than {data}")


def main(arguments: list[str]) -> None:
    """BLEU by source length, and its improvement over APE (figure 3, appendix D)."""
    parser = base.command(NAME, main.__doc__)
    base.add_data(parser)
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="RESULT", help="result files of one setting"
    )
    parser.add_argument(
        "--trained-length",
        type=positive,
        metavar="N",
        help="longer ones are gray (default: the limit of EXTRAPOLATE)",
    )
    parser.add_argument("--width", type=positive, help="of a bucket, in subwords")
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    found = [results.read(path) for path in args.results]
    check_data(found, args.data)
    trained = args.trained_length or base.trained_length(args.data, found[0].setting)
    signed = base.signature(args.data, {}, trained_length=trained, width=args.width)
    signed["checkpoints"] = {
        f"{label_of(one)} seed {one.seed}": {
            "path": str(path),
            "sha256": one.signature["checkpoint"],
        }
        for one, path in zip(found, args.results, strict=True)
    }
    result = compute(found, args.data, trained, args.width)
    base.publish(args.out, NAME, signed, result, plot(result))
    for label, scores in result["models"].items():
        parts = ", ".join(
            f"{part} {scores[part]:.2f}" for part in result["sequences"] if scores[part] is not None
        )
        print(f"{figures.title(label)}: BLEU {parts}")
