"""Chance is told from a difference, as sacreBLEU and the tables of Student's t tell it."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from shape_fairseq.evaluation import bootstrap

WORDS = [f"Wort{number}" for number in range(50)]


def corpus(sentences: int = 60, seed: int = 1) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, 12)) for _ in range(sentences)]


def worsened(lines: list[str], wrong: float, seed: int) -> list[str]:
    """Sentences of which a share of the words is wrong."""
    generator = np.random.default_rng(seed)
    return [
        " ".join(word if generator.random() > wrong else "falsch" for word in line.split())
        for line in lines
    ]


def test_a_clear_difference_is_none_of_chance():
    references = corpus()
    good, bad = worsened(references, 0.1, seed=1), worsened(references, 0.3, seed=2)
    difference = bootstrap.compare_bleu([{"test": good}], [{"test": bad}], {"test": references})
    scores = [BLEU().corpus_score(lines, [references]).score for lines in (good, bad)]
    assert difference.value == pytest.approx(scores[0] - scores[1])
    assert difference.low < difference.value < difference.high and difference.low > 0
    assert difference.is_positive and not difference.is_negative
    opposite = bootstrap.compare_bleu([{"test": bad}], [{"test": good}], {"test": references})
    assert opposite.is_negative and opposite.value == -difference.value


def test_equal_quality_is_undecided_and_equal_text_has_p_one():
    references = corpus()
    first, second = worsened(references, 0.2, seed=3), worsened(references, 0.2, seed=4)
    difference = bootstrap.compare_bleu([{"test": first}], [{"test": second}], {"test": references})
    assert (
        not difference.is_positive
        and not difference.is_negative
        and difference.low < 0 < difference.high
    )
    same = bootstrap.compare_bleu([{"test": first}], [{"test": first}], {"test": references})
    assert (same.value, same.p_value) == (0, 1)


def test_resamples_are_those_of_sacrebleus_machinery():
    references = corpus(200)
    first, second = worsened(references, 0.2, seed=5), worsened(references, 0.215, seed=6)
    difference = bootstrap.compare_bleu([{"test": first}], [{"test": second}], {"test": references})
    systems = [("second", second), ("first", first)]
    _, scores = PairedTest(systems, {"BLEU": BLEU()}, [references], "bs", n_samples=1000)()
    # sacreBLEU's p is one-sided.
    assert difference.p_value == pytest.approx(2 * scores["BLEU"][1].p_value, abs=0.03)
    drawn = bootstrap.draws(200)
    assert drawn.shape == (1000, 200) and (drawn.sum(1) == 200).all()
    samples = bootstrap.BLEUSamples(first, references, drawn).samples
    assert samples.mean() == pytest.approx(scores["BLEU"][1].mean, abs=0.2)
    half_width = np.subtract(*np.quantile(samples, (0.975, 0.025))) / 2
    assert half_width == pytest.approx(scores["BLEU"][1].ci, rel=0.15)


def test_the_rate_of_false_alarms_is_five_percent():
    """Means of pure noise differ from zero, by the test, in about 50 of 1,000 cases."""
    generator, drawn = np.random.default_rng(1), bootstrap.draws(50, samples=400)
    noise = generator.normal(size=(1000, 50))
    p_values = [
        bootstrap.from_samples(items.mean(), drawn @ items / 50, "bootstrap").p_value
        for items in noise
    ]
    assert 35 <= sum(p_value < 0.05 for p_value in p_values) <= 75


def test_seeds_are_judged_by_students_t():
    # Two-sided quantiles at 5 % from the tables.
    for freedom, quantile in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262)):
        assert bootstrap._t_quantile(freedom) == pytest.approx(quantile, abs=0.001)
    difference = bootstrap.between_seeds([30.0, 31.0, 32.0], [27.0, 28.0, 29.0])
    # t = 3 / (1 * sqrt(2 / 3)) = 3.674 with four degrees of freedom.
    assert difference.value == 3 and difference.p_value == pytest.approx(0.0213, abs=0.0001)
    assert difference.low == pytest.approx(3 - 2.776 * (2 / 3) ** 0.5, abs=0.001)
    assert not bootstrap.between_seeds([30.0, 31.0, 35.0], [29.0, 30.0, 33.0]).is_positive
    assert bootstrap.from_seeds([1.0, 1.0, 1.0]).is_positive
    assert bootstrap.from_seeds([1.0, -1.0, 0.5]).p_value > 0.5


def test_three_seeds_count_for_more_than_many_sentences():
    """Sentences alone would call this certain; another training might turn it around."""
    references = corpus(300)
    texts = {"test": references}
    ours = [{"test": worsened(references, wrong, 7)} for wrong in (0.1, 0.2, 0.3)]
    theirs = [{"test": worsened(references, wrong, 8)} for wrong in (0.13, 0.23, 0.33)]
    assert bootstrap.compare_bleu(ours[:1], theirs[:1], texts).is_positive
    all_seeds = bootstrap.compare_bleu(ours, theirs, texts)
    assert all_seeds.method == "3 and 3 seeds" and not all_seeds.is_positive


def test_many_questions_are_corrected_as_holm_did():
    raised = bootstrap.holm([0.01, 0.04, 0.03, 0.005])
    assert raised == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert bootstrap.holm([0.2]) == [0.2] and bootstrap.holm([]) == []
    assert bootstrap.holm([0.9, 0.8]) == [1.0, 1.0]
