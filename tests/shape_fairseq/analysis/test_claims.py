"""Verdicts on measurements whose answers are known, certain ones and uncertain ones."""

import dataclasses

import numpy as np
import pytest

from shape_fairseq.analysis import claims
from shape_fairseq.analysis.claims import FAILS, HOLDS, UNDECIDED, UNKNOWN
from shape_fairseq.evaluation.cells import by_data

WORDS = [f"Wort{number}" for number in range(50)]


def check(sentence: str, analyses: dict, results=()) -> claims.Verdict:
    (claim,) = [claim for claim in claims.CLAIMS if claim.sentence.startswith(sentence)]
    return claim.check(claims.Runs(analyses, by_data(list(results))))


def corpus(sentences: int) -> list[str]:
    generator = np.random.default_rng(1)
    return [" ".join(generator.choice(WORDS, 12)) for _ in range(sentences)]


def worsened(lines: list[str], wrong: float, seed: int) -> list[str]:
    """Sentences of which a share of the words is wrong."""
    generator = np.random.default_rng(seed)
    return [
        " ".join(word if generator.random() > wrong else "falsch" for word in line.split())
        for line in lines
    ]


def test_claims_without_a_measurement_are_not_measured():
    empty = claims.Runs({}, [])
    assert {claim.check(empty).verdict for claim in claims.CLAIMS} == {UNKNOWN}


def test_every_claim_says_why_a_small_run_may_not_show_it():
    for claim in claims.CLAIMS:
        assert claim.small_run.endswith(".") and claim.criterion.endswith(".")


def similarities(**cosines: list[float]) -> dict:
    """Matrices of two offsets for each sequence, of which the last layer has this cosine."""
    models = {
        model: {
            "mean": float(np.mean(values)),
            "sequences": [[[[1, 0], [0, 1]], [[1, value], [value, 1]]] for value in values],
        }
        for model, values in cosines.items()
    }
    result = {"offsets": [0, 100], "models": models}
    return {("interpolate", "similarity"): [result]}


NEAR_ONE = [0.97, 0.98, 0.96, 0.99, 0.97, 0.98]
FAR = [0.5, 0.6, 0.55, 0.7, 0.4, 0.6]
AROUND = [0.90, 0.99, 0.93, 0.99, 0.91, 0.99]


@pytest.mark.parametrize(
    ("ape", "shape", "expected"),
    [
        (FAR, NEAR_ONE, HOLDS),
        (FAR, [0.9, 0.91, 0.9, 0.89, 0.92, 0.9], FAILS),
        (NEAR_ONE, NEAR_ONE, FAILS),
        (FAR, AROUND, UNDECIDED),
        (FAR[:3], NEAR_ONE[:3], UNDECIDED),
    ],
)
def test_shift_invariance_is_judged_by_one_threshold(ape, shape, expected):
    verdict = check("SHAPE learns to be shift invariant", similarities(ape=ape, shape=shape))
    assert verdict.verdict == expected and f"SHAPE {np.mean(shape):.3f}" in verdict.measured
    if shape is AROUND:
        assert "p = 0." in verdict.measured


def swapped(sequences: int, ape: tuple[float, float], shape: tuple[float, float]) -> dict:
    """A swap analysis of models with these shares of wrong words in either order."""
    references = corpus(sequences)
    models = {}
    for label, shares in (("ape", ape), ("shape", shape)):
        sentences = {
            order: worsened(references, wrong, seed=len(models) * 2 + place)
            for place, (order, wrong) in enumerate(
                zip(("original", "swapped"), shares, strict=True)
            )
        }
        samples = {
            order: claims.BLEUSamples(lines, references, np.ones((1, sequences), dtype=int)).score
            for order, lines in sentences.items()
        }
        drop = samples["original"] - samples["swapped"]
        models[label] = {"bleu": samples, "drop": drop, "sentences": sentences}
    return {("interpolate", "swap"): [{"references": references, "models": models}]}


def test_swapping_is_judged_by_the_difference_of_the_drops():
    def verdict(*arguments):
        return check("Moving a sentence", swapped(*arguments))

    certain = verdict(80, (0.1, 0.4), (0.1, 0.12))
    assert certain.verdict == HOLDS and "80 sequences" in certain.measured
    assert verdict(80, (0.1, 0.12), (0.1, 0.4)).verdict == FAILS
    # The demo's case: SHAPE's drop is less, and it may well be chance.
    uncertain = verdict(20, (0.2, 0.22), (0.2, 0.21))
    assert uncertain.verdict == UNDECIDED and "p = 0." in uncertain.measured
    assert verdict(80, (0.95, 0.99), (0.95, 0.95)).verdict == UNKNOWN


def test_seeds_of_an_analysis_are_judged_together():
    """Three analyses of which one contradicts the others decide nothing."""
    key = ("interpolate", "swap")
    good, bad = swapped(80, (0.1, 0.4), (0.1, 0.12)), swapped(80, (0.1, 0.12), (0.1, 0.4))
    verdict = check("Moving a sentence", {key: good[key] + bad[key] + good[key]})
    assert verdict.verdict == UNDECIDED and "3 seeds" in verdict.measured
    again = swapped(70, (0.1, 0.42), (0.1, 0.13))[key] + swapped(60, (0.1, 0.38), (0.1, 0.1))[key]
    assert check("Moving a sentence", {key: good[key] + again}).verdict == HOLDS


@pytest.fixture
def scored(make_result):
    """scored("vanilla", "shape", 0.2, seed=1): a result with this share of wrong words."""
    references = corpus(100)

    def make(setting: str, model: str, wrong: float, seed: int = 1):
        lines = worsened(references, wrong, seed + 100 * (model == "shape"))
        bleu = claims.BLEUSamples(lines, references, np.ones((1, 100), dtype=int)).score
        return dataclasses.replace(
            make_result(model, good_when_long=True),
            setting=setting,
            seed=seed,
            bleu={"as_in_paper": {"test": bleu}},
            hypotheses={"test": lines},
            references={"test": references},
        )

    return make


def test_better_means_better_than_chance(scored):
    def verdict(ape, shape):
        results = [scored("interpolate", "ape", ape), scored("interpolate", "shape", shape)]
        return check("On INTERPOLATE", {}, results)

    assert verdict(0.3, 0.2).verdict == HOLDS
    assert verdict(0.2, 0.3).verdict == FAILS
    assert verdict(0.9, 0.95).verdict == UNKNOWN  # nothing is translated
    close = verdict(0.21, 0.2)
    assert close.verdict == UNDECIDED and "paired bootstrap" in close.measured


def test_comparable_means_an_interval_within_one_bleu(scored, make_result):
    def verdict(*results):
        return check("On VANILLA", {}, results)

    ape = scored("vanilla", "ape", 0.2)
    assert verdict(ape, scored("vanilla", "shape", 0.2)).verdict == UNDECIDED  # wide intervals
    assert verdict(ape, scored("vanilla", "shape", 0.5)).verdict == FAILS
    same = dataclasses.replace(ape, model="shape", max_shift=20)
    assert verdict(ape, same).verdict == HOLDS


def test_seeds_that_disagree_decide_nothing(scored):
    """A single pair of seeds would have been certain."""
    shares = {"ape": (0.3, 0.2, 0.25), "shape": (0.2, 0.3, 0.22)}
    results = [
        scored("interpolate", model, wrong, seed)
        for model, wrongs in shares.items()
        for seed, wrong in enumerate(wrongs, start=1)
    ]
    first_seeds = [result for result in results if result.seed == 1]
    assert check("On INTERPOLATE", {}, first_seeds).verdict == HOLDS
    verdict = check("On INTERPOLATE", {}, results)
    assert verdict.verdict == UNDECIDED and "3 and 3 seeds" in verdict.measured


def test_extrapolation_is_judged_by_the_analysis_own_interval():
    def verdict(value, p_value):
        difference = {"value": value, "low": value - 1, "high": value + 1, "method": "bootstrap"}
        models = {
            "ape": {"seeds": {"untrained": [20.0]}, "differences": {}},
            "shape": {
                "seeds": {"untrained": [20 + value]},
                "differences": {"untrained": {"ape": {**difference, "p_value": p_value}}},
            },
        }
        result = {"sequences": {"untrained": 30}, "models": models}
        return check("SHAPE extrapolates", {("extrapolate", "length-bleu"): [result]})

    assert verdict(2.0, 0.01).verdict == HOLDS and verdict(-2.0, 0.01).verdict == FAILS
    uncertain = verdict(1.0, 0.21)
    assert uncertain.verdict == UNDECIDED and "p = 0.210" in uncertain.measured


def speeds(ratios: list[float]) -> dict:
    models = {
        "ape": {"training": {"speed": 1.0, "turns": [1.0] * len(ratios)}},
        "shape": {
            "training": {
                "speed": float(np.median(ratios)),
                "turns": [1 / ratio for ratio in ratios],
            }
        },
    }
    return {"models": models}


def test_speed_is_judged_over_all_settings():
    def verdict(vanilla, interpolate):
        analyses = {
            ("vanilla", "speed"): [speeds(vanilla)],
            ("interpolate", "speed"): [speeds(interpolate)],
        }
        return check("SHAPE's training is as fast", analyses)

    steady = verdict([1.02] * 10, [0.99, 0.98, 0.99, 1.0, 0.99, 0.98])
    assert steady == claims.Verdict("x1.02 (VANILLA), x0.99 (INTERPOLATE)", HOLDS)
    assert verdict([0.8] * 10, [0.9, 0.91, 0.89, 0.9, 0.9]).verdict == FAILS
    noisy = [0.7, 1.3, 0.8, 1.2, 0.95, 0.94]
    assert verdict(noisy, noisy).verdict == UNDECIDED
    assert verdict([1.02] * 2, [1.0] * 2).verdict == UNDECIDED


def token_scores(sequences: int, **higher: float) -> dict:
    """Sequences of ten tokens of every part, of which a share is scored higher."""
    generator = np.random.default_rng(1)
    by_sequence = {
        part: [[10, int(generator.binomial(10, share))] for _ in range(sequences)]
        for part, share in higher.items()
    }
    trained = {"tokens": 10, "ratio": 0.5}
    result = {"models": ["ape", "shape"], "by_sequence": by_sequence, "trained": trained}
    return {(name, "token-scores"): [result] for name in ("interpolate", "extrapolate")}


def test_token_scores_are_judged_by_half_and_by_sequence():
    beyond = "Better extrapolation"
    assert check(beyond, token_scores(50, untrained=0.7)).verdict == HOLDS
    assert check(beyond, token_scores(50, untrained=0.3)).verdict == FAILS
    uncertain = check(beyond, token_scores(10, untrained=0.5))
    assert uncertain.verdict == UNDECIDED and "p = " in uncertain.measured
    assert check(beyond, token_scores(2, untrained=0.7)).verdict == UNKNOWN  # 20 tokens
    # All tokens of a sequence alike: 200 tokens, but only 20 that are independent.
    alike = token_scores(20, untrained=0.5)
    counts = [[10, 10]] * 12 + [[10, 0]] * 8
    alike["extrapolate", "token-scores"][0]["by_sequence"]["untrained"] = counts
    assert check(beyond, alike).verdict == UNDECIDED


def test_rare_tokens_need_both_comparisons():
    rare = "Interpolation is particularly"
    assert check(rare, token_scores(100, all=0.6, rare=0.8)).verdict == HOLDS
    assert check(rare, token_scores(100, all=0.7, rare=0.5)).verdict == FAILS
    assert check(rare, token_scores(100, all=0.3, rare=0.6)).verdict == FAILS
    assert check(rare, token_scores(100, all=0.6, rare=0.61)).verdict == UNDECIDED
