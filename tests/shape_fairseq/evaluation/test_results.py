import json

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import results
from shape_fairseq.evaluation.results import ALL, SPLIT


def test_macro_averages(make_result):
    result = make_result(bleu=20.0)
    assert result.macro("valid") == 21.5 and result.macro("test") == 25.0
    assert result.macro(ALL) == 23.0
    assert result.macro("valid", SPLIT) is None
    del result.bleu["as_in_paper"]["newstest2012"]
    assert result.macro("valid") is None and result.macro(ALL) is None


def test_files_that_are_no_results_are_refused(tmp_path):
    path = tmp_path / "other.json"
    for text in ("{}", "[1]", "no json"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"other\.json is not a result"):
            results.read(path)


def test_a_result_that_lacks_a_field_is_refused_with_its_name(make_result, tmp_path):
    path = tmp_path / "result.json"
    results.write(make_result(), path)
    whole = json.loads(path.read_text())
    for field in ("bleu", "training", "signature"):
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != field}))
        with pytest.raises(UserError, match=f"the field {field} is missing"):
            results.read(path)
    damages = {
        "separators": ({"test": {"missing": 1}}, r"separators\.test\.expected is missing"),
        "references": ({"test": ["a"]}, "test must have a reference for each line"),
        "training": (whole["training"] | {"seconds": 0}, "training.seconds must be more than 0"),
    }
    for field, (value, message) in damages.items():
        path.write_text(json.dumps(whole | {field: value}))
        with pytest.raises(UserError, match=message):
            results.read(path)
    del whole["signature"]["data"]
    path.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"the field signature\.data is missing"):
        results.read(path)


def test_a_result_from_before_there_were_other_metrics_is_read(make_result, tmp_path):
    path = tmp_path / "result.json"
    results.write(make_result(), path)
    fields = json.loads(path.read_text())
    assert fields.pop("format") == 1
    del fields["other_metrics"]
    path.write_text(json.dumps(fields))
    assert results.read(path) == make_result()
