import dataclasses

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation.significance import compare_all


def test_significance_tells_better_from_equal(make_result):
    references = [f"Satz {i} hat {i * 7 % 11} Wörter und {i * 5 % 13} Silben" for i in range(60)]
    worse = [" ".join(reversed(line.split())) for line in references]
    texts = dict.fromkeys(sum(make_result().groups.values(), []), references)
    good = make_result(model="rpe", hypotheses=texts, references=texts)
    bad = make_result(hypotheses=dict.fromkeys(texts, worse), references=texts)
    baseline, better, *_ = compare_all([good, bad], samples=100)
    assert baseline["model"] == "APE" and baseline["p_value"] is None
    assert better["model"] == "RPE" and better["p_value"] < 0.05 < 50 < better["bleu"]
    same = dataclasses.replace(bad, model="shape", max_shift=500)
    _, equal, *_ = compare_all([bad, same], samples=100)
    assert equal["p_value"] == 1.0
    other = dataclasses.replace(good, references=dict.fromkeys(texts, worse))
    with pytest.raises(UserError, match="different texts"):
        list(compare_all([other, bad], samples=100))
