"""Score what fairseq-generate wrote: BPE removed, detokenized, sacreBLEU on each test set."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from sacrebleu.metrics import BLEU

from ..errors import UserError
from ..files import read_lines, sha256
from ..text.detokenize import detokenize_joined
from ..text.separator import JOIN, split_joined
from . import checkpoints, results
from .results import AS_IN_PAPER, SPLIT, Result


def read_hypotheses(path: Path) -> list[str]:
    """The translations in the output of fairseq-generate, in the order of the test set."""
    found = {}
    for line in read_lines(path):
        if line.startswith(b"H-"):
            number, _, text = line.decode("utf-8").split("\t", 2)
            found[int(number[2:])] = text
    if sorted(found) != list(range(len(found))):
        raise UserError(f"{path} lacks translations: delete it and evaluate again")
    return [found[number] for number in range(len(found))]


def read_text(path: Path) -> list[str]:
    """The lines of a reference."""
    return [line.decode("utf-8") for line in read_lines(path)]


def aligned(sentences: list[str], wanted: int) -> list[str]:
    """As many sentences as the reference has, by their place and by nothing else.

    What a missing <sep> took away stays empty, and what an extra one added stays in the last
    sentence: both cost BLEU, and no text is lost or moved to where it would score better.
    """
    missing = [""] * (wanted - len(sentences))
    return [*sentences[: wanted - 1], " ".join(sentences[wanted - 1 :]), *missing][:wanted]


def count_separators(hypotheses: list[list[str]], references: list[list[str]]) -> dict[str, int]:
    """How many <sep> are missing or too many, and in how many sequences."""
    surplus = [len(ours) - len(theirs) for ours, theirs in zip(hypotheses, references, strict=True)]
    return {
        "sequences": len(surplus),
        "expected": sum(len(sentences) - 1 for sentences in references),
        "missing": -sum(number for number in surplus if number < 0),
        "extra": sum(number for number in surplus if number > 0),
        "sequences_with_missing": sum(number < 0 for number in surplus),
        "sequences_with_extra": sum(number > 0 for number in surplus),
    }


def split_pairs(
    hypotheses: list[list[str]], references: list[list[str]]
) -> Iterator[tuple[str, str]]:
    """Each sentence of joined sequences with its reference."""
    for ours, theirs in zip(hypotheses, references, strict=True):
        yield from zip(aligned(ours, len(theirs)), theirs, strict=True)


def read_subsets(data: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """{"valid": ["newstest2010", ...], "test": [...]}, and the subsets' names in sacreBLEU."""
    groups, names = {}, {}
    for line in read_text(data / "statistics" / "subsets.tsv")[1:]:
        subset, parts, name = line.split("\t")
        if subset in ("valid", "test"):
            groups[subset] = parts.split()
        if name:
            names[subset] = name
    return groups, names


def score(
    data: Path, save: Path, checkpoint: Path, generated: Path, settings: dict[str, str]
) -> Result:
    """Score all translations in the folder `generated`."""
    recipe = results.read_parameters(save / "recipe.txt")
    setting = recipe["SETTING"]
    references = data / "reference" / ("vanilla" if setting == "scaling_nmt" else setting)
    groups, sacrebleu_names = read_subsets(data)
    metric = BLEU()
    bleu: dict[str, dict[str, float]] = {AS_IN_PAPER: {}}
    separators, hypotheses, texts = {}, {}, {}
    for subset in sum(groups.values(), []):
        if not (generated / f"{subset}.txt").exists():
            continue
        sentences = [
            detokenize_joined(line, "de") for line in read_hypotheses(generated / f"{subset}.txt")
        ]
        reference = read_text(references / f"{subset}.de")
        if len(sentences) != len(reference):
            raise UserError(
                f"{generated / subset}.txt has {len(sentences):,} translations of"
                f" {len(reference):,}: delete it and evaluate again"
            )
        hypotheses[subset] = [JOIN.join(line) for line in sentences]
        texts[subset] = reference
        bleu[AS_IN_PAPER][subset] = metric.corpus_score(hypotheses[subset], [reference]).score
        if setting == "interpolate":
            wanted = [split_joined(line) for line in reference]
            separators[subset] = count_separators(sentences, wanted)
            ours, theirs = map(list, zip(*split_pairs(sentences, wanted), strict=True))
            bleu.setdefault(SPLIT, {})[subset] = metric.corpus_score(ours, [theirs]).score
    if not hypotheses:
        raise UserError(f"{generated} has no translations of {', '.join(sum(groups.values(), []))}")
    state = checkpoints.load(checkpoint)
    extra = state["extra_state"]
    return Result(
        setting=setting,
        model=recipe["MODEL"],
        size=recipe["ARCH_SIZE"],
        seed=int(recipe["SEED"]),
        max_shift=int(recipe["MAX_SHIFT"]) if recipe["MAX_SHIFT"] else None,
        groups=groups,
        bleu=bleu,
        separators=separators,
        training={
            "updates": state["optimizer_history"][-1]["num_updates"],
            "seconds": extra["previous_training_time"],
            "parameters": extra["parameters"],
            "hardware": (save / "hardware.txt").read_text(encoding="utf-8").strip(),
        },
        signature={
            "checkpoint": sha256(checkpoint),
            "averaged_updates": extra["averaged_updates"],
            "data": {
                **results.read_parameters(data / "parameters.txt"),
                "dictionary": sha256(data / "dict.txt"),
            },
            "training": recipe,
            "generation": settings,
            "versions": results.versions(),
            "sacrebleu": metric.get_signature().format(),
            "sacrebleu_test_sets": sacrebleu_names,
        },
        hypotheses=hypotheses,
        references=texts,
    )


def summary(result: Result) -> Iterator[str]:
    """The scores as lines for the terminal."""
    for kind, scores in result.bleu.items():
        title = "" if len(result.bleu) == 1 else f" ({kind.replace('_', ' ')})"
        for subset, score in scores.items():
            yield f"{subset}{title}: BLEU {score:.2f}"
        for group in (*result.groups, results.ALL):
            if (mean := result.macro(group, kind)) is not None:
                name = "all" if group == results.ALL else group
                yield f"macro average of {name}{title}: BLEU {mean:.2f}"
    for subset, counts in result.separators.items():
        yield (
            f"{subset}: {counts['missing']} of {counts['expected']} <sep> missing,"
            f" {counts['extra']} too many, in {counts['sequences_with_missing']} and"
            f" {counts['sequences_with_extra']} of {counts['sequences']} sequences"
        )
    yield f"signature: {result.signature['sacrebleu']}"


def main(arguments: list[str]) -> None:
    """Score translations and write the result with all that it depends on."""
    parser = argparse.ArgumentParser(prog="shape-fairseq score", description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data_prep")
    parser.add_argument("--save", type=Path, required=True, help="the folder of the training")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument(
        "--generated", type=Path, required=True, help="folder of fairseq-generate's SUBSET.txt"
    )
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="to be recorded"
    )
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    settings = dict(pair.split("=", 1) for pair in args.setting)
    result = score(args.data, args.save, args.checkpoint, args.generated, settings)
    results.write(result, args.output)
    print(*summary(result), sep="\n")
