"""The formats of analyses: what the report needs must be there, and more may be."""

import json

import pytest

from shape_fairseq import records
from shape_fairseq.analysis import base
from shape_fairseq.analysis.formats import RESULTS
from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import ANALYSES

SEPARATORS = {"sequences": 1, "expected": 1, "missing": 0, "extra": 0}
SEPARATORS |= {"sequences_with_missing": 0, "sequences_with_extra": 0}
TIMING = {"seconds": 0.1, "speed": 1, "turns": [0.1, 0.1]}
TALLY = {"tokens": 0, "ratio": None}
EXAMPLES = {
    "similarity": {
        "offsets": [0, 9],
        "models": {"ape": {"sequences": [[[[1.0, 0.5], [0.5, 1.0]]]], "mean": 0.5}},
    },
    "swap": {
        "sequences": 1,
        "references": ["a"],
        "models": {
            "ape": {
                "bleu": {"original": 20.0, "swapped": 19},
                "drop": 1.0,
                "separators": {"original": SEPARATORS, "swapped": SEPARATORS},
                "sentences": {"original": ["a"], "swapped": ["b"]},
            }
        },
    },
    "length-bleu": {
        "setting": "extrapolate",
        "trained_length": None,
        "sequences": {"all": 10},
        "models": {"ape": {"seeds": {"all": [20.5, 21]}, "differences": {"all": {}}}},
    },
    "token-scores": {
        "models": ["ape", "shape"],
        "by_sequence": {"rare": [[3, 2], [0, 0]]},
        "all": {"tokens": 3, "ratio": 0.5},
        "trained": TALLY,
        "untrained": TALLY,
    },
    "speed": {
        "setting": "vanilla",
        "device": "CPU",
        "models": {
            "ape": {"training": TIMING, "generation": TIMING, "step_memory": 8e6, "parameters": 9}
        },
    },
    "curves": {"settings": {}},
    "lengths": {"vanilla": {}},
}


def places(value, *above):
    """Where the fields of a result are: ("models", "ape", "drop")."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield (*above, name)
            yield from places(inside, *above, name)


def changed(result: dict, place: tuple, change) -> dict:
    """A copy of a result in which `change` was called with what holds the field, and its name."""
    result = inside = json.loads(json.dumps(result))
    for name in place[:-1]:
        inside = inside[name]
    change(inside, place[-1])
    return result


def test_every_analysis_has_a_format():
    assert RESULTS.keys() == set(ANALYSES) == EXAMPLES.keys()


@pytest.mark.parametrize("name", RESULTS)
def test_what_an_analysis_writes_is_read_with_fields_of_newer_versions(tmp_path, name):
    newer = EXAMPLES[name] | {"newer": 1}
    base.publish(tmp_path, name, {}, newer, {})
    assert base.read(tmp_path / f"{name}.json").result == newer


@pytest.mark.parametrize("name", ["similarity", "swap", "length-bleu", "token-scores", "speed"])
def test_a_field_that_is_missing_or_something_else_is_named(tmp_path, name):
    by_name = {"ape", "all", "rare"}  # what a result has of these depends on the run
    tried = 0
    for place in places(EXAMPLES[name]):
        wrong = changed(EXAMPLES[name], place, lambda fields, field: fields.update({field: True}))
        assert f"{'.'.join(place)} must be " in records.mismatch(wrong, RESULTS[name]), place
        if place[-1] not in by_name or name == "token-scores" and place == ("all",):
            lacking = changed(EXAMPLES[name], place, lambda fields, field: fields.pop(field))
            assert records.mismatch(lacking, RESULTS[name]) == (
                f"the field {'.'.join(place)} is missing"
            )
            tried += 1
    assert tried >= 4
    base.publish(tmp_path, name, {}, lacking, {})
    with pytest.raises(UserError, match=rf"is missing\).*run shape-fairseq {name} again") as error:
        base.read(tmp_path / f"{name}.json")
    assert "\n" not in str(error.value)
