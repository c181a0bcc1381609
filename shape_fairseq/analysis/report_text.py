"""What the report says in words: its first sentences, its names, and the captions of figures."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..evaluation.cells import Cells
from ..evaluation.results import Result, model_title, variant_title
from .claims import FAILS, HOLDS, UNDECIDED, UNKNOWN, Verdict


@dataclasses.dataclass(frozen=True)
class Words:
    """What one kind of analysis is about, and how to read each of its figures."""

    title: str
    lead: str
    captions: Mapping[str, str]  # by the name of the figure's file


# In the order of the page.
SECTIONS = {
    "similarity": Words(
        "Shift invariance",
        "The same sequences are encoded several times, each time with all positions shifted by"
        " another number, the offset. To a model that sees only the order of the words, nothing has"
        " changed.",
        {
            "similarity": "Cosine similarity of the encoder's states at two offsets, after each"
            " layer, averaged over words and sequences. 1.00 (yellow) means that the states are the"
            " same. A shift-invariant model is yellow everywhere in its last layer.",
            "similarity-sequences": "The last layer again, one panel for each sequence: # is its"
            " number in the data.",
        },
    ),
    "swap": Words(
        "Moved sentences",
        "Sequences of joined training sentences are translated twice: as they were in training,"
        " and with the first sentence moved to the end. Only its place is new to the model.",
        {
            "swap": "BLEU of the first sentence's translation, in its own place (dark) and moved to"
            " the end (light). The drop is what the move costs: the less, the better.",
        },
    ),
    "length-bleu": Words(
        "BLEU by sentence length",
        "The test set is sorted by the length of the source. EXTRAPOLATE shows how a model copes"
        " with sentences that are longer than all of its training.",
        {
            "length-bleu": "Above: BLEU minus APE's BLEU, so that bars above zero are better than"
            " APE. Below: BLEU itself. Gray: lengths that do not occur in training. n is the number"
            " of test sequences of that length; few of them make a bar uncertain.",
        },
    ),
    "token-scores": Words(
        "Probability of the right words",
        "Two models are asked how probable each subword of the reference translation is, given all"
        " that comes before it.",
        {
            "token-scores": "The share of subwords to which the model that the title names first"
            " gives the higher probability: above 0.5 (orange) it is ahead, below (purple) the"
            " other. To the right are later positions, upwards subwords that are more frequent in"
            " training. n is the number of subwords. Right of the black line, if there is one, are"
            " positions that do not occur in training.",
        },
    ),
    "curves": Words(
        "Learning curves",
        "How well each model predicts the validation text while it is trained.",
        {
            "curves": "Perplexity of the validation text, by updates (left) and by time (right):"
            " the lower, the better. A curve that still falls at its end belongs to a model that"
            " had not finished learning.",
            "curves-relative": "The same perplexities divided by APE's after as many updates: above"
            " one a model is behind APE, below one ahead of it.",
        },
    ),
    "lengths": Words(
        "Sequence lengths",
        "How long the training sequences are in each setting.",
        {"lengths": "The share of training sequences of each length, counted in subwords."},
    ),
    "speed": Words(
        "Speed and memory",
        "All models take turns on the same batches, so that other work on the machine slows all of"
        " them alike.",
        {
            "speed": "Speed of training and of translation relative to APE (more is better), and"
            " the memory of one training step (less is better).",
        },
    ),
}
# The names that a reader of the page must know.
SETTING_NAMES = {
    "vanilla": "the sentence pairs as they are",
    "extrapolate": "trained on short pairs only, tested on all",
    "interpolate": "neighbouring pairs joined into long sequences, with <sep> between them",
    "scaling_nmt": "the pairs of VANILLA with the large batches of fairseq's own recipe",
}
MODEL_NAMES = {
    "ape": "a fixed vector for each absolute position is added to each word",
    "shape": "APE, with all positions of a training sequence shifted by a random number",
    "rpe": "attention learns a vector for each distance between two words",
    "cape": "APE, with positions shifted and scaled at random in training",
    "randomized": "APE, with random positions of a longer range in training",
    "rope": "queries and keys are rotated by their position",
    "alibi": "attention falls linearly with the distance",
    "t5_bias": "attention has a learned bias for each range of distances",
}


def listed(words: Iterable[object]) -> str:
    """One, two and three."""
    *words_before, last = map(str, words)
    return f"{', '.join(words_before)} and {last}" if words_before else last


def ordered(scored: list[Result]) -> tuple[list[str], list[str]]:
    """The settings and the models that were scored."""
    settings, models = {r.setting for r in scored}, {r.model for r in scored}
    return in_order(settings, SETTING_NAMES), in_order(models, MODEL_NAMES)


def in_order(present: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names in the order in which they are known, then others."""
    places = {name: place for place, name in enumerate(known)}
    return sorted(present, key=lambda name: (places.get(name, len(places)), name))


def names(scored: list[Result]) -> Iterator[tuple[str, str]]:
    """What the models and the settings of these results are."""
    settings, models = ordered(scored)
    yield from ((model_title(name), MODEL_NAMES[name]) for name in models if name in MODEL_NAMES)
    yield from ((name.upper(), SETTING_NAMES[name]) for name in settings if name in SETTING_NAMES)


def first_sentences(
    scored: list[Result], cells: list[Cells], verdicts: Iterable[Verdict]
) -> list[str]:
    """What was compared, the scores, and how many of the paper's claims hold."""
    sentences = [compared(scored), scores(cells)] if scored else []
    return [*sentences, counted(list(verdicts))]


def compared(scored: list[Result]) -> str:
    """Which models, on what, and how long they were trained."""
    settings, models = ordered(scored)
    updates = listed(f"{n:,}" for n in sorted({r.training["updates"] for r in scored}))
    seeds = len({result.seed for result in scored})
    return (
        f"{listed(map(model_title, models))} {'were' if len(models) > 1 else 'was'} trained on"
        f" {listed(name.upper() for name in settings)} for {updates} updates with"
        f" {'one seed' if seeds == 1 else f'{seeds} seeds'}, and translated the same test sets."
    )


def scores(cells: list[Cells]) -> str:
    """BLEU on test, the best model first."""
    parts = []
    for of_data in cells:
        data = f" ({of_data.name})" if len(cells) > 1 else ""
        for setting in ordered(of_data.results)[0]:
            means = {}
            for variant in of_data.variants(setting):
                bleu = [result.macro("test") for result in of_data.get(setting, variant)]
                known = [score for score in bleu if score is not None]
                if known and len(known) == len(bleu):
                    means[variant_title(variant)] = statistics.fmean(known)
            ranking = sorted(means, key=lambda title: -means[title])
            if ranking:
                numbers = ", ".join(f"{title}\u00a0{means[title]:.2f}" for title in ranking)
                parts.append(f"{setting.upper()}{data}: {numbers}")
    if not parts:
        return "No test set was scored as a whole."
    return f"BLEU on the test set, the best model first, was on {'; on '.join(parts)}."


def counted(verdicts: list[Verdict]) -> str:
    """How many claims hold."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    says = {
        HOLDS: ("holds", "hold"),
        FAILS: ("does not hold", "do not hold"),
        UNDECIDED: ("is undecided", "are undecided"),
        UNKNOWN: ("was not measured", "were not measured"),
    }
    parts = [
        f"{counts[name]} {one if counts[name] == 1 else many}"
        for name, (one, many) in says.items()
        if counts[name]
    ]
    return f"Of {len(verdicts)} claims of the paper, {listed(parts)} in these runs."
