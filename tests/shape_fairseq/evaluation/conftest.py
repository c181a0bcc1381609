"""Results on WMT'16 whose scores are known."""

import dataclasses

import pytest

from shape_fairseq.evaluation import paper
from shape_fairseq.evaluation.cells import Cells, by_data
from shape_fairseq.evaluation.results import Result

GROUPS = {"valid": list(paper.NEWSTESTS[:4]), "test": list(paper.NEWSTESTS[4:])}


@pytest.fixture
def make_result():
    """make_result("vanilla", "ape", bleu=20): newstests that score 20, 21, ..."""

    def make(setting="vanilla", model="ape", seed=1, bleu=20.0, **changes) -> Result:
        scores = {name: bleu + number for number, name in enumerate(paper.NEWSTESTS)}
        result = Result(
            setting=setting,
            model=model,
            size="base",
            seed=seed,
            max_shift=500 if model == "shape" else None,
            groups=GROUPS,
            bleu={"as_in_paper": scores},
            separators={},
            training={"updates": 100, "seconds": 50.0, "parameters": 61, "hardware": "8 x V100"},
            signature={
                "data": {"DATA": "wmt16"},
                "generation": {"beam": "4"},
                "sacrebleu": "nrefs:1",
                "training": {"SEED": str(seed), "BATCH_TOKENS": "112000"},
            },
            hypotheses={},
            references={},
        )
        return dataclasses.replace(result, **changes)

    return make


@pytest.fixture
def only():
    """only(result, ...): the cells of results that share their tables."""

    def gather(*results: Result) -> Cells:
        (cells,) = by_data(list(results))
        return cells

    return gather
