import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation.cells import by_data
from shape_fairseq.evaluation.results import title_of


def test_seeds_that_differ_in_more_are_not_averaged(make_result, only):
    wider = {**make_result().signature, "generation": {"beam": "5"}}
    with pytest.raises(UserError, match="seeds 1 and 2 differ in generation"):
        only(make_result(), make_result(seed=2, signature=wider))
    shorter = {**make_result().training, "updates": 50}
    with pytest.raises(UserError, match="seeds 1 and 2 differ in updates"):
        only(make_result(), make_result(seed=2, training=shorter))
    with pytest.raises(UserError, match="two results of APE on vanilla with seed 1"):
        only(make_result(), make_result())


def test_models_that_the_paper_does_not_have_come_last(make_result, only):
    rope = make_result(model="rope")
    assert title_of(rope) == "RoPE"
    cells = only(rope, make_result(model="shape", max_shift=40))
    papers = [("ape", None), ("rpe", None), ("shape", None)]
    assert cells.variants("vanilla") == [*papers, ("rope", None), ("shape", 40)]
    assert cells.variants("interpolate") == papers


def test_other_data_has_other_cells(make_result):
    demo = make_result(signature=make_result().signature | {"data": {"DATA": "demo"}})
    papers, other = by_data([make_result(), demo])
    assert papers.is_papers and not other.is_papers
