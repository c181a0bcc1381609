"""Results whose scores are known, and a folder of runs made of them."""

import dataclasses

import pytest

from shape_fairseq.analysis import length_bleu
from shape_fairseq.evaluation import results
from shape_fairseq.evaluation.results import Result
from shape_fairseq.files import sha256

SENTENCE = "ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster"
WORDS = SENTENCE.split()


@pytest.fixture
def data(tmp_path):
    """The files of a data folder that BLEU by length needs: ten short and ten long sentences."""
    folder = tmp_path / "data"
    (folder / "text" / "extrapolate").mkdir(parents=True)
    lines = [" ".join(WORDS[:4])] * 10 + [" ".join(WORDS[:12])] * 10
    (folder / "text" / "extrapolate" / "test.fr").write_text("\n".join(lines) + "\n")
    (folder / "parameters.txt").write_text(
        "DATA=made-up\nEXTRAPOLATE_LIMIT=6\nSOURCE_LANG=fr\nTARGET_LANG=de\n"
    )
    (folder / "dict.txt").write_text("ein 9\n")
    return folder


@pytest.fixture
def make_result(data):
    """make_result("ape", good_when_long=False): a model that translates short sentences."""

    def make(model: str, good_when_long: bool, **changes) -> Result:
        references = [" ".join(WORDS[:5])] * 10 + [" ".join(WORDS)] * 10
        reversed_long = references[:10] + [" ".join(WORDS[::-1])] * 10
        result = Result(
            setting="extrapolate",
            model=model,
            size="tiny",
            seed=1,
            max_shift=20 if model == "shape" else None,
            groups={"test": ["test"]},
            bleu={"as_in_paper": {"test": 80.0 if good_when_long else 40.0}},
            separators={},
            training={"updates": 10, "seconds": 5.0, "parameters": 61, "hardware": "CPU"},
            signature={
                "checkpoint": model,
                "data": {"DATA": "made-up", "dictionary": sha256(data / "dict.txt")},
                "generation": {},
                "sacrebleu": "nrefs:1",
                "training": {"SEED": "1"},
            },
            hypotheses={"test": references if good_when_long else reversed_long},
            references={"test": references},
        )
        return dataclasses.replace(result, **changes)

    return make


@pytest.fixture
def runs(data, make_result, tmp_path):
    """A folder of runs with results of APE and SHAPE on EXTRAPOLATE, and their BLEU by length."""
    folder = tmp_path / "runs"
    for model in ("ape", "shape"):
        path = folder / "results" / f"extrapolate-{model}.json"
        results.write(make_result(model, good_when_long=model == "shape"), path)
    files = [str(path) for path in (folder / "results").iterdir()]
    out = str(folder / "analysis" / "extrapolate")
    length_bleu.main([*files, "--data", str(data), "--out", out, "--width", "3"])
    return folder
