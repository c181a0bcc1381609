"""Scores are sacreBLEU's, and a signature tells what moves them."""

import pytest
from sacrebleu.metrics import TER

from shape_fairseq.evaluation import metrics

REFERENCES = ["Ein Hund läuft über den Rasen .", "Zwei Männer sitzen auf einer Bank ."]


@pytest.mark.parametrize(
    "make", [metrics.bleu, metrics.chrf, metrics.lowercased_tokenized_bleu, metrics.ParallelTER]
)
def test_the_best_score_is_that_of_the_reference(make):
    best = 0 if make is metrics.ParallelTER else 100
    assert make().score(REFERENCES, REFERENCES) == pytest.approx(best)
    worst = 100 - best
    assert make().score(["xyz", ""], REFERENCES) == pytest.approx(worst, abs=1)


def test_ter_on_all_cores_is_sacrebleus():
    references = [f"Satz {i} hat {i * 7 % 11} Wörter , und mehr" for i in range(120)]
    hypotheses = [" ".join(line.split()[i % 4 :]) for i, line in enumerate(references)]
    expected = TER().corpus_score(hypotheses, [references])
    metric = metrics.ParallelTER()
    assert metric.score(hypotheses, references) == pytest.approx(expected.score)
    assert metric.score([""], [""]) == TER().corpus_score([""], [[""]]).score == 0
    assert metric.signature().startswith("nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no")


def test_ter_of_a_reference_without_words():
    assert metrics.ParallelTER().score(["zu viel"], [""]) == 100
    assert metrics.count_edits([("zu viel", ""), ("a b c", "a x c")]) == (3, 3)


def test_only_the_bleu_of_other_papers_ignores_case_and_tokenizes_nothing():
    lowered = [line.lower() for line in REFERENCES]
    detokenized = [line.replace(" .", ".") for line in REFERENCES]
    cased, lowercased = metrics.bleu(), metrics.lowercased_tokenized_bleu()
    assert cased.score(lowered, REFERENCES) < 60 < lowercased.score(lowered, REFERENCES)
    assert cased.score(detokenized, REFERENCES) == pytest.approx(100)
    assert lowercased.score(detokenized, REFERENCES) < 90


def test_signatures_tell_the_metrics_apart():
    made = [metrics.bleu(), metrics.chrf(), metrics.lowercased_tokenized_bleu()]
    for metric in made:
        metric.score(REFERENCES, REFERENCES)
    bleu, chrf, lowercased = (metric.signature() for metric in made)
    assert bleu.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert lowercased.startswith("nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:")
