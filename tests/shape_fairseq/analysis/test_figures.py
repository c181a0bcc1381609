from shape_fairseq.analysis import figures
from shape_fairseq.model_names import MODELS


def test_each_model_has_a_look_of_its_own():
    labels = list(MODELS)
    assert len({figures.colour(label, labels) for label in labels}) == len(labels)
    assert len({figures.marker(label) for label in labels}) == len(labels)


def test_a_model_looks_the_same_whatever_it_is_shown_with():
    for label in MODELS:
        assert figures.colour(label, [label]) == figures.colour(label, [*MODELS])


def test_further_variants_and_unknown_models_take_what_is_left():
    labels = ["ape", "shape-k20", "shape-k40", "mine"]
    colours = [figures.colour(label, labels) for label in labels]
    assert len(set(colours)) == 4
    assert colours[1] == figures.COLOURS["shape"] and figures.COLOURS["ape"] == colours[0]
