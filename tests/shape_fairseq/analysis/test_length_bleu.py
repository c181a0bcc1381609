import dataclasses

import pytest

from shape_fairseq.analysis import base, length_bleu
from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import results


def test_bleu_by_length_tells_trained_from_untrained_lengths(runs):
    path = runs / "analysis" / "extrapolate" / "length-bleu.json"
    record = base.read(path)
    result = record.result
    assert result["trained_length"] == 6
    assert result["sequences"] == {"all": 20, "trained": 10, "untrained": 10}
    ape, shape = result["models"]["ape"], result["models"]["shape"]
    assert ape["seeds"]["trained"] == shape["seeds"]["trained"] == [pytest.approx(100)]
    (untrained,) = ape["seeds"]["untrained"]
    assert untrained < 20 and shape["seeds"]["untrained"] == [pytest.approx(100)]
    assert ape["differences"]["untrained"] == {}
    difference = shape["differences"]["untrained"]["ape"]
    assert difference["value"] == pytest.approx(100 - untrained)
    assert difference["p_value"] < 0.01 and difference["method"] == "paired bootstrap"
    filled = [bucket for bucket in result["buckets"] if bucket["sequences"]]
    assert [bucket["untrained"] for bucket in filled] == [False, True]
    assert record.signature["checkpoints"]["ape seed 1"]["sha256"] == "ape"
    for ending in ("png", "svg"):
        assert path.with_suffix(f".{ending}").stat().st_size > 1000


def test_results_that_cannot_be_compared_are_refused(data, make_result, tmp_path):
    def refuse(message, *members):
        paths = []
        for number, result in enumerate(members):
            paths.append(tmp_path / message[:4] / f"{number}.json")
            results.write(result, paths[-1])
        with pytest.raises(UserError, match=message):
            out = str(tmp_path / "refused")
            length_bleu.main([*map(str, paths), "--data", str(data), "--out", out])
        assert not (tmp_path / "refused").exists()

    ape, shape = (make_result(model, True) for model in ("ape", "shape"))
    refuse("no result of APE", shape)
    refuse("several settings", ape, dataclasses.replace(shape, setting="vanilla"))
    others = {"test": ["other"] * len(shape.references["test"])}
    refuse("different test sets", ape, dataclasses.replace(shape, references=others))
    elsewhere = {**ape.signature, "data": {"DATA": "other", "dictionary": "other"}}
    refuse("of other data", dataclasses.replace(ape, signature=elsewhere))


def test_a_result_is_never_overwritten(runs, data):
    files = [str(path) for path in (runs / "results").iterdir()]
    out = str(runs / "analysis" / "extrapolate")
    with pytest.raises(UserError, match="exists already"):
        length_bleu.main([*files, "--data", str(data), "--out", out])


def test_all_seeds_are_compared(data, make_result, tmp_path):
    paths = []
    for model in ("ape", "shape"):
        for seed in (1, 2, 3):
            paths.append(str(tmp_path / f"{model}{seed}.json"))
            results.write(make_result(model, model == "shape", seed=seed), paths[-1])
    length_bleu.main([*paths, "--data", str(data), "--out", str(tmp_path / "out")])
    models = base.read(tmp_path / "out" / "length-bleu.json").result["models"]
    assert len(models["shape"]["seeds"]["untrained"]) == 3
    assert models["shape"]["differences"]["untrained"]["ape"]["method"] == "3 and 3 seeds"


def test_every_model_is_compared_with_those_before_it(data, make_result, tmp_path):
    paths = []
    for model in ("rope", "shape", "ape", "mine"):
        paths.append(str(tmp_path / f"{model}.json"))
        results.write(make_result(model, model != "ape"), paths[-1])
    length_bleu.main([*paths, "--data", str(data), "--out", str(tmp_path / "out")])
    models = base.read(tmp_path / "out" / "length-bleu.json").result["models"]
    compared = {name: [*model["differences"]["all"]] for name, model in models.items()}
    assert list(compared.items()) == [
        ("ape", []),
        ("shape", ["ape"]),
        ("rope", ["ape", "shape"]),
        ("mine", ["ape", "shape", "rope"]),
    ]
