"""Figure 3 and appendix D: BLEU by source length, and its improvement over APE."""

import dataclasses
import statistics
from collections.abc import Iterable
from pathlib import Path

from ..command_line import positive
from ..data_folder import dictionary_checksum, languages, read_text, text_path
from ..errors import UserError
from ..evaluation import bootstrap, metrics, results
from ..evaluation.bootstrap import Scored
from ..evaluation.cells import mean_cell
from ..evaluation.results import Result, label_of, label_title
from ..model_names import MODELS
from . import base
from .buckets import Buckets

NAME = "length-bleu"
BASELINE = "ape"
MANY = 4  # models, beyond which a legend needs a place of its own
FEWEST = 10  # sequences in the first and last bucket: BLEU of fewer says nothing

Sequence = tuple[str, int]  # a subset and a place in it


def by_label(members: list[Result]) -> dict[str, list[Result]]:
    """The seeds of every model; all must be of one setting and translate the same text."""
    if len({result.setting for result in members}) > 1:
        raise UserError("results of several settings: give those of one")
    if any(result.references != members[0].references for result in members):
        raise UserError("the results are of different test sets: give those of one")
    labels: dict[str, list[Result]] = {}
    for result in members:
        labels.setdefault(label_of(result), []).append(result)
    if BASELINE not in labels:
        raise UserError("no result of APE, with which the others are compared")
    shapes = [label for label in labels if label.startswith("shape")]
    if len(shapes) == 1:  # one SHAPE needs no maximum shift to be told from the others
        labels = {("shape" if name in shapes else name): seeds for name, seeds in labels.items()}
    order = list(MODELS)  # APE is the first

    def place(label: str) -> tuple[int, str]:
        model = label.partition("-")[0]
        return order.index(model) if model in order else len(order), label

    return {name: labels[name] for name in sorted(labels, key=place)}


def source_lengths(data: Path, result: Result) -> dict[Sequence, int]:
    """The source length in subwords of every sequence that was translated."""
    lengths: dict[Sequence, int] = {}
    source_lang, _ = languages(data)
    for subset, references in result.references.items():
        path = text_path(data, result.setting, subset, source_lang)
        lines = read_text(path)
        if len(lines) != len(references):
            raise UserError(f"{path} has not as many lines as the results have")
        lengths |= {(subset, place): len(line.split()) for place, line in enumerate(lines)}
    return lengths


def lines_of(texts: dict[str, list[str]], sequences: Iterable[Sequence]) -> list[str]:
    """Some lines of some test sets."""
    return [texts[subset][place] for subset, place in sequences]


def bleu(seeds: list[Result], sequences: list[Sequence]) -> float | None:
    """BLEU of some sequences of all subsets, the mean of the seeds; none without sequences."""
    if not sequences:
        return None
    metric = metrics.bleu()
    references = lines_of(seeds[0].references, sequences)
    return statistics.fmean(
        metric.score(lines_of(result.hypotheses, sequences), references) for result in seeds
    )


def resampled(seeds: list[Result], sequences: list[Sequence]) -> list[Scored]:
    """BLEU of some sequences, and of resamples of them, for each seed."""
    references = lines_of(seeds[0].references, sequences)
    drawn = bootstrap.draws(len(sequences))
    samples = [
        bootstrap.BLEUSamples(lines_of(result.hypotheses, sequences), references, drawn)
        for result in seeds
    ]
    return [(sample.score, sample.samples) for sample in samples]


def compare(scored: dict[str, list[Scored]]) -> dict[str, dict[str, dict]]:
    """Each model minus every one before it, and whether that may be chance."""
    labels = list(scored)
    return {
        label: {
            other: dataclasses.asdict(bootstrap.between_models(scored[label], scored[other]))
            for other in labels[:place]
        }
        for place, label in enumerate(labels)
    }


def compute(
    members: list[Result], data: Path, trained: int | None, width: int | None = None
) -> dict:
    """BLEU of every model in buckets of lengths, within and beyond the trained lengths."""
    labels = by_label(members)
    lengths = source_lengths(data, members[0])
    buckets = Buckets.over(lengths.values(), trained, width, FEWEST)
    in_bucket: list[list[Sequence]] = [[] for _ in buckets.ends]
    for sequence, length in lengths.items():
        in_bucket[buckets.number(length)].append(sequence)
    parts: dict[str, list[Sequence]] = {"all": list(lengths), "trained": [], "untrained": []}
    if trained is not None:
        for sequence, length in lengths.items():
            parts["trained" if length <= trained else "untrained"].append(sequence)
    scored = {
        part: {label: resampled(seeds, inside) for label, seeds in labels.items()}
        for part, inside in parts.items()
        if inside
    }
    differences = {part: compare(models) for part, models in scored.items()}
    return {
        "setting": members[0].setting,
        "trained_length": trained,
        "buckets": [
            {"lengths": name, "sequences": len(inside), "untrained": untrained}
            for name, inside, untrained in zip(
                buckets.names(), in_bucket, buckets.untrained(trained), strict=True
            )
        ],
        "sequences": {part: len(inside) for part, inside in parts.items()},
        "models": {
            label: {
                "bleu": [bleu(seeds, inside) for inside in in_bucket],
                "seeds": {
                    part: [score for score, _ in models[label]] for part, models in scored.items()
                },
                "differences": {part: models[label] for part, models in differences.items()},
            }
            for label, seeds in labels.items()
        },
        "sacrebleu": members[0].signature["sacrebleu"],
    }


def _shade_untrained(axis, buckets: list[dict], colour: str) -> None:
    untrained = [place for place, bucket in enumerate(buckets) if bucket["untrained"]]
    if untrained:
        start, end = untrained[0] - 0.5, untrained[-1] + 0.5
        axis.axvspan(start, end, color=colour, zorder=0)
        axis.text(
            end,
            1.01,
            "no training data",
            transform=axis.get_xaxis_transform(),
            ha="right",
            fontsize=7.5,
            color="#555555",
        )
    axis.set_xlim(-0.5, len(buckets) - 0.5)


def plot(result: dict) -> dict:
    """The improvement over APE (figure 3) above the absolute scores (appendix D)."""
    from . import figures

    buckets, models = result["buckets"], result["models"]
    labels = list(models)
    many = len(labels) > MANY
    figure, (improvement, absolute) = figures.subplots(
        2, 1, figsize=(max(5.5, 0.75 * len(buckets)), 7.2 if many else 5.4), sharex=True
    )
    others = [label for label in labels if label != BASELINE]
    filled = [place for place, bucket in enumerate(buckets) if bucket["sequences"]]
    for number, label in enumerate(others):
        width = 0.8 / len(others)
        gains = [models[label]["bleu"][at] - models[BASELINE]["bleu"][at] for at in filled]
        places = [at - 0.4 + (number + 0.5) * width for at in filled]
        colour = figures.colour(label, labels)
        improvement.bar(places, gains, width * 0.92, color=colour, label=label_title(label))
    improvement.axhline(0, color="#333333", linewidth=0.8)
    improvement.set_ylabel("BLEU improvement over APE")
    improvement.set_title(f"{result['setting'].upper()}: BLEU by source length", loc="left")
    for label in labels:
        absolute.plot(
            filled,
            [models[label]["bleu"][place] for place in filled],
            color=figures.colour(label, labels),
            marker=figures.marker(label),
            label=label_title(label),
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
        _shade_untrained(axis, buckets, figures.UNTRAINED)
        # There is no improvement without another model.
        if not many and axis.get_legend_handles_labels()[0]:
            axis.legend(ncols=len(labels))
    if many:  # one legend for both, beside nothing that it could hide
        figure.legend(*absolute.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return {NAME: figure}


def check_data(members: list[Result], data: Path) -> None:
    """Refuse results of other data than those of the folder."""
    dictionary = dictionary_checksum(data)
    if any(result.signature["data"].get("dictionary") != dictionary for result in members):
        raise UserError(f"the results are of other data than {data}")


def main(arguments: list[str]) -> None:
    """BLEU by source length, and its improvement over APE (figure 3, appendix D)."""
    parser = base.command(
        NAME,
        main.__doc__,
        "runs/demo/results/extrapolate-*.json --data runs/demo/data --out figures",
    )
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
    members = [results.read(path) for path in args.results]
    check_data(members, args.data)
    trained = args.trained_length or base.trained_length(args.data, members[0].setting)
    signature = base.signature(args.data, {}, trained_length=trained, width=args.width)
    signature["checkpoints"] = {
        f"{label_of(result)} seed {result.seed}": {
            "path": str(path),
            "sha256": result.signature.get("checkpoint"),
        }
        for result, path in zip(members, args.results, strict=True)
    }
    result = compute(members, args.data, trained, args.width)
    base.publish(args.out, NAME, signature, result, plot(result))
    for label, scores in result["models"].items():
        parts = ", ".join(f"{part} {mean_cell(bleu)}" for part, bleu in scores["seeds"].items())
        print(f"{label_title(label)}: BLEU {parts}")
