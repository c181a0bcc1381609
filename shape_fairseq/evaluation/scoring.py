"""Score what fairseq-generate wrote: BPE removed, detokenized, sacreBLEU on each test set."""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import data_folder
from ..command_line import Parser
from ..data_folder import read_text
from ..errors import UserError
from ..files import read_lines, refuse_existing, sha256
from ..text import bpe
from ..text.detokenize import ARCHIVE_HYPHEN, detokenize_joined
from ..text.separator import JOIN, split_joined
from ..text.tokenizer import tokenize
from . import metrics, results, training_folder
from .metrics import Metric
from .results import (
    AS_IN_PAPER,
    BLEU,
    CHRF,
    LOWERCASED_TOKENIZED,
    SPLIT,
    TER,
    Result,
    Scores,
    Separators,
    WrittenSignature,
)

Sequences = list[list[str]]  # the sentences of every sequence


def read_hypotheses(path: Path) -> list[str]:
    """The translations in the output of fairseq-generate, in the order of the test set."""
    translations = {}
    for line in read_lines(path):
        if line.startswith(b"H-"):
            try:
                number, _, text = line.decode("utf-8").split("\t", 2)
                translations[int(number[2:])] = text
            except ValueError as error:
                raise UserError(f"{path} is damaged: delete it and evaluate again") from error
    if sorted(translations) != list(range(len(translations))):
        raise UserError(f"{path} lacks translations: delete it and evaluate again")
    return [translations[number] for number in range(len(translations))]


def aligned(sentences: list[str], wanted: int) -> list[str]:
    """As many sentences as the reference has, by their place and by nothing else.

    What a missing <sep> took away stays empty, and what an extra one added stays in the last
    sentence: both cost BLEU, and no text is lost or moved to where it would score better.
    """
    missing = [""] * (wanted - len(sentences))
    return [*sentences[: wanted - 1], " ".join(sentences[wanted - 1 :]), *missing][:wanted]


def count_separators(hypotheses: Sequences, references: Sequences) -> Separators:
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


def split_pairs(hypotheses: Sequences, references: Sequences) -> Iterator[tuple[str, str]]:
    """Each sentence of joined sequences with its reference."""
    for ours, theirs in zip(hypotheses, references, strict=True):
        yield from zip(aligned(ours, len(theirs)), theirs, strict=True)


@dataclasses.dataclass(frozen=True)
class TranslatedText:
    """The translations of a test set and what they are scored against."""

    hypotheses: Sequences
    references: Sequences

    def lines(self, kind: str) -> tuple[list[str], list[str]]:
        """Translations and references as they are scored: joined, or sentence by sentence."""
        if kind == SPLIT:
            pairs = list(split_pairs(self.hypotheses, self.references))
            return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        return list(map(JOIN.join, self.hypotheses)), list(map(JOIN.join, self.references))


Texts = dict[str, TranslatedText]  # by test set


@dataclasses.dataclass(frozen=True)
class TestSet:
    """A test set as fairseq-generate translated it."""

    subwords: list[str]
    references: list[str]
    target_lang: str

    def detokenized(self) -> TranslatedText:
        """As a person would write it: what BLEU, chrF2 and TER are for."""
        return TranslatedText(
            [detokenize_joined(line, self.target_lang) for line in self.subwords],
            [split_joined(line) for line in self.references],
        )

    def tokenized(self) -> TranslatedText:
        """Moses tokens on both sides, the tokens of the translation as the model wrote them."""
        words = (bpe.remove(line).replace(ARCHIVE_HYPHEN, "-") for line in self.subwords)
        return TranslatedText(
            [split_joined(line) for line in words],
            [
                [tokenize(sentence, self.target_lang) for sentence in split_joined(line)]
                for line in self.references
            ],
        )


def read_test_sets(data: Path, setting: str, generated: Path) -> dict[str, TestSet]:
    """The test sets of which the folder `generated` has translations."""
    _, target_lang = data_folder.languages(data)
    test_sets = {}
    subsets = sum(data_folder.read_subsets(data).groups.values(), [])
    for subset in dict.fromkeys(subsets):
        path = generated / f"{subset}.txt"
        if not path.exists():
            continue
        subwords = read_hypotheses(path)
        references = read_text(data_folder.reference_path(data, setting, subset, target_lang))
        if len(subwords) != len(references):
            raise UserError(
                f"{path} has {len(subwords):,} translations of {len(references):,}: delete it and"
                " evaluate again"
            )
        test_sets[subset] = TestSet(subwords, references, target_lang)
    if not test_sets:
        raise UserError(f"{generated} has no translations of {', '.join(subsets)}")
    return test_sets


@dataclasses.dataclass
class AllScores:
    """Scores by metric, kind and test set, and the metrics' signatures."""

    scores: dict[str, dict[str, Scores]] = dataclasses.field(default_factory=dict)
    signatures: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, name: str, metric: Metric, texts: Texts, kinds: tuple[str, ...]) -> None:
        """Score all test sets in one metric."""
        self.scores[name] = {
            kind: {subset: metric.score(*text.lines(kind)) for subset, text in texts.items()}
            for kind in kinds
        }
        self.signatures[name] = metric.signature()


def score_all(texts: Texts, joined: bool, tokenized: Texts | None) -> AllScores:
    """BLEU, chrF2 and TER, and lowercased BLEU of the tokenized texts if there are any."""
    kinds = (AS_IN_PAPER, SPLIT) if joined else (AS_IN_PAPER,)
    scores = AllScores()
    scores.add(BLEU, metrics.bleu(), texts, kinds)
    scores.add(CHRF, metrics.chrf(), texts, kinds)
    # Of sentences only: TER of ten joined ones would take half a minute for each sequence.
    scores.add(TER, metrics.ParallelTER(), texts, kinds[-1:])
    if tokenized:
        metric = metrics.lowercased_tokenized_bleu()
        scores.add(LOWERCASED_TOKENIZED, metric, tokenized, kinds)
    return scores


def score(
    data: Path,
    save: Path,
    checkpoint: Path,
    generated: Path,
    settings: dict[str, str],
    lowercased_tokenized: bool = False,
) -> Result:
    """Score all translations in the folder `generated`."""
    recipe = training_folder.read_recipe(save)
    training_folder.check_same_data(recipe, save, data)
    hardware = training_folder.read_hardware(save)
    subsets = data_folder.read_subsets(data)
    test_sets = read_test_sets(data, recipe.setting, generated)
    texts = {subset: test_set.detokenized() for subset, test_set in test_sets.items()}
    tokenized = None
    if lowercased_tokenized:
        tokenized = {subset: test_set.tokenized() for subset, test_set in test_sets.items()}
    joined = recipe.setting == "interpolate"
    scored = score_all(texts, joined, tokenized)
    from .weights import read_history  # imports torch, which --help does not wait for

    history = read_history(checkpoint)
    signature: WrittenSignature = {
        "checkpoint": sha256(checkpoint),
        "averaged_updates": history.averaged_updates,
        "data": data_folder.signature(data),
        "training": recipe.values,
        "generation": settings,
        "versions": results.versions(),
        "sacrebleu": scored.signatures.pop(BLEU),
        "other_metrics": scored.signatures,
        "sacrebleu_test_sets": subsets.sacrebleu_names,
    }
    return Result(
        setting=recipe.setting,
        model=recipe.model,
        size=recipe.size,
        seed=recipe.seed,
        max_shift=recipe.max_shift,
        groups=subsets.groups,
        bleu=scored.scores.pop(BLEU),
        separators={
            subset: count_separators(text.hypotheses, text.references)
            for subset, text in texts.items()
            if joined
        },
        training={
            "updates": history.updates,
            "seconds": history.seconds,
            "parameters": history.parameters,
            "hardware": hardware,
        },
        signature=signature,
        hypotheses={subset: text.lines(AS_IN_PAPER)[0] for subset, text in texts.items()},
        references={subset: test_set.references for subset, test_set in test_sets.items()},
        other_metrics=scored.scores,
    )


def summary(result: Result) -> Iterator[str]:
    """The scores as lines for the terminal."""
    for metric, kinds in {BLEU: result.bleu, **result.other_metrics}.items():
        for kind in kinds:
            title = "" if len(result.bleu) == 1 else f" ({kind.replace('_', ' ')})"
            for subset, score in kinds[kind].items():
                yield f"{subset}{title}: {metric} {score:.2f}"
            for group in (*result.groups, results.ALL):
                if (mean := result.macro(group, kind, metric)) is not None:
                    name = "all" if group == results.ALL else group
                    yield f"macro average of {name}{title}: {metric} {mean:.2f}"
    for subset, counts in result.separators.items():
        yield (
            f"{subset}: {counts['missing']} of {counts['expected']} <sep> missing,"
            f" {counts['extra']} too many, in {counts['sequences_with_missing']} and"
            f" {counts['sequences_with_extra']} of {counts['sequences']} sequences"
        )
    signature: Mapping[str, Any] = result.signature
    for metric, text in {BLEU: signature["sacrebleu"], **signature["other_metrics"]}.items():
        yield f"signature of {metric}: {text}"


def assignment(text: str) -> tuple[str, str]:
    """An argparse type: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


EXAMPLE = """--data runs/demo/data --save runs/demo/checkpoints/extrapolate-ape-seed1 \\
    --checkpoint runs/demo/checkpoints/extrapolate-ape-seed1/average-*.pt \\
    --generated runs/demo/checkpoints/extrapolate-ape-seed1/generated/average-* \\
    --output result.json"""


def main(arguments: list[str]) -> None:
    """Score translations and write the result with all that it depends on."""
    parser = Parser(prog="shape-fairseq score", description=main.__doc__, example=EXAMPLE)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data_prep")
    parser.add_argument("--save", type=Path, required=True, help="the folder of the training")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument(
        "--generated", type=Path, required=True, help="folder of fairseq-generate's SUBSET.txt"
    )
    parser.add_argument(
        "--setting",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="to be recorded",
    )
    parser.add_argument(
        "--lowercased-tokenized",
        action="store_true",
        help="also BLEU of lowercased Moses tokens, to compare with papers that report that",
    )
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    refuse_existing(args.output)
    result = score(
        args.data,
        args.save,
        args.checkpoint,
        args.generated,
        dict(args.setting),
        args.lowercased_tokenized,
    )
    results.write(result, args.output)
    print(*summary(result), sep="\n")
