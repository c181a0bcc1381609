"""The words of the report: what was compared, what came out, and what names mean."""

import pytest

from shape_fairseq.analysis.claims import FAILS, HOLDS, UNDECIDED, UNKNOWN, Verdict
from shape_fairseq.analysis.formats import RESULTS
from shape_fairseq.analysis.report_text import (
    MODEL_NAMES,
    SECTIONS,
    SETTING_NAMES,
    compared,
    counted,
    first_sentences,
    in_order,
    listed,
    names,
    scores,
)
from shape_fairseq.data_folder import RECIPES
from shape_fairseq.evaluation.cells import by_data
from shape_fairseq.model_names import MODELS


@pytest.fixture
def result(make_result):
    """result("ape", 20.5): a result with this BLEU on test, or with none."""

    def make(model, test=20.0, **changes):
        scored = {} if test is None else {"test": test}
        return make_result(model, True, bleu={"as_in_paper": scored}, **changes)

    return make


def verdicts(*wanted):
    return [Verdict("measured", verdict) for verdict in wanted]


def test_all_names_are_explained():
    assert MODEL_NAMES.keys() == MODELS.keys()
    assert SETTING_NAMES.keys() == set(RECIPES)
    assert SECTIONS.keys() == RESULTS.keys()


def test_lists_read_as_a_person_would_say_them():
    assert [listed(range(number)) for number in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]


def test_names_keep_the_order_of_the_paper_and_others_come_last():
    assert in_order({"zeta", "rpe", "alpha", "ape"}, MODEL_NAMES) == ["ape", "rpe", "alpha", "zeta"]


def test_one_model_and_one_seed_are_no_plural(result):
    assert compared([result("ape")]) == (
        "APE was trained on EXTRAPOLATE for 10 updates with one seed, and translated the same test"
        " sets."
    )


def test_all_settings_seeds_and_updates_are_named(result):
    longer = {**result("ape").training, "updates": 20000}
    scored = [
        result("rpe", setting="vanilla", training=longer),
        result("ape", seed=2),
        result("ape"),
    ]
    assert compared(scored) == (
        "APE and RPE were trained on VANILLA and EXTRAPOLATE for 10 and 20,000 updates with 2"
        " seeds, and translated the same test sets."
    )


def test_the_best_mean_of_the_seeds_comes_first(result):
    scored = [
        result("ape", 20.0),
        result("ape", 21.009, seed=2),
        result("shape", 20.504, max_shift=500),
        result("rpe", 9.996, setting="vanilla"),
    ]
    # Two spaces that do not break hold a name and its number together.
    assert scores(by_data(scored)).replace("\u00a0", "_") == (
        "BLEU on the test set, the best model first, was on VANILLA: RPE_10.00; on EXTRAPOLATE:"
        " APE_20.50, SHAPE_20.50."
    )


def test_each_data_set_has_its_own_scores(result):
    other = {**result("ape").signature, "data": {"DATA": "demo"}}
    text = scores(by_data([result("ape", 20.0), result("ape", 30.0, signature=other)]))
    assert "EXTRAPOLATE (made-up, tiny): APE\u00a020.00; on EXTRAPOLATE (demo, tiny)" in text


def test_a_model_with_a_seed_that_was_not_scored_has_no_mean(result):
    scored = [result("ape"), result("ape", None, seed=2), result("rpe", 5.0)]
    assert "APE" not in scores(by_data(scored)) and "RPE\u00a05.00" in scores(by_data(scored))
    assert scores(by_data([result("ape", None)])) == "No test set was scored as a whole."


def test_claims_are_counted_by_their_verdicts():
    many = verdicts(HOLDS, HOLDS, FAILS, UNDECIDED, UNKNOWN, UNKNOWN)
    assert counted(many) == (
        "Of 6 claims of the paper, 2 hold, 1 does not hold, 1 is undecided and 2 were not measured"
        " in these runs."
    )
    assert counted(verdicts(HOLDS)) == "Of 1 claims of the paper, 1 holds in these runs."


def test_without_scores_only_the_claims_are_told():
    (sentence,) = first_sentences([], [], verdicts(UNKNOWN))
    assert sentence == "Of 1 claims of the paper, 1 was not measured in these runs."


def test_only_what_occurs_is_explained(result):
    explained = dict(names([result("shape"), result("mine", setting="other")]))
    assert explained.keys() == {"SHAPE", "EXTRAPOLATE"}
