"""Scores on small texts whose answers sacreBLEU gives."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF, TER

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import results, scoring
from shape_fairseq.evaluation.results import AS_IN_PAPER, LOWERCASED_TOKENIZED, SPLIT


def test_hypotheses_are_sorted_and_must_be_complete(tmp_path):
    path = tmp_path / "valid.txt"
    path.write_text("S-1\tb\nH-1\t-0.5\tzwei\nD-1\t-0.5\tzwei\nH-0\t-0.1\tei@@ ns\nH-2\t-1\t\n")
    assert scoring.read_hypotheses(path) == ["ei@@ ns", "zwei", ""]
    path.write_text("H-0\t-0.1\teins\nH-2\t-0.1\tdrei\n")
    with pytest.raises(UserError, match="lacks translations"):
        scoring.read_hypotheses(path)
    path.write_text("H-0\t-0.1\teins\nH-1\t-0")
    with pytest.raises(UserError, match="is damaged"):
        scoring.read_hypotheses(path)


@pytest.mark.parametrize(
    ("sentences", "wanted", "expected"),
    [
        (["a", "b"], 2, ["a", "b"]),
        (["a b"], 3, ["a b", "", ""]),
        (["a", "b", "c"], 2, ["a", "b c"]),
        (["a", "b"], 1, ["a b"]),
        ([""], 2, ["", ""]),
    ],
)
def test_sentences_keep_their_places(sentences, wanted, expected):
    assert scoring.aligned(sentences, wanted) == expected


def test_separators_are_counted_both_ways():
    hypotheses = [["a"], ["a", "b", "c", "d"], ["a", "b"]]
    counts = scoring.count_separators(hypotheses, [["x", "y", "z"], ["x", "y"], ["x", "y"]])
    assert counts == {
        "sequences": 3,
        "expected": 4,
        "missing": 2,
        "extra": 2,
        "sequences_with_missing": 1,
        "sequences_with_extra": 1,
    }


# French to Czech: neither of the languages that the paper has.
REFERENCES = ["Ahoj, světe! <sep> Řekl: „Kočka spí.“", "Pes běží rychle. <sep> Vlak jede domů."]
SUBWORDS = ["Ah@@ oj , světe ! <sep> Řekl : &quot; Kočka spí . &quot;", "pes běží rych@@ le ."]


@pytest.fixture
def evaluated(tmp_path):
    """The arguments of `score` for a model of INTERPOLATE, French to Czech."""
    data, save, generated = (tmp_path / name for name in ("data", "save", "generated"))
    for folder in (data / "statistics", data / "reference" / "interpolate", save, generated):
        folder.mkdir(parents=True)
    (data / "parameters.txt").write_text("DATA=own\nSOURCE_LANG=fr\nTARGET_LANG=cs\n")
    (data / "dict.txt").write_text("pes 1\n")
    (data / "statistics" / "subsets.tsv").write_text(
        "subset\tparts\tsacrebleu\nvalid\tvalid\t\ntest\ttest\t\n"
    )
    reference = data / "reference" / "interpolate" / "test.cs"
    reference.write_text("".join(f"{line}\n" for line in REFERENCES))
    content = (data / "parameters.txt").read_bytes() + (data / "dict.txt").read_bytes()
    data_hash = hashlib.sha256(content).hexdigest()[:16]
    (save / "recipe.txt").write_text(
        f"SETTING=interpolate\nMODEL=ape\nARCH_SIZE=tiny\nSEED=2\nMAX_SHIFT=\nDATA_HASH={data_hash}\n"
    )
    (save / "hardware.txt").write_text("CPU, 1 process\n")
    lines = [f"H-{number}\t-0.1\t{line}\n" for number, line in enumerate(SUBWORDS)]
    (generated / "test.txt").write_text("".join(reversed(lines)))
    history = {"previous_training_time": 5.0, "parameters": 7, "averaged_updates": [9, 10]}
    weights = {"decoder.weight": torch.zeros(2)}
    state = {"model": weights, "optimizer_history": [{"num_updates": 10}], "extra_state": history}
    torch.save(state, save / "average.pt")
    options = {"data": data, "save": save, "checkpoint": save / "average.pt"}
    options |= {"generated": generated, "output": tmp_path / "result.json"}
    return [text for name, path in options.items() for text in (f"--{name}", str(path))]


def test_every_metric_is_sacrebleus_and_has_its_signature(evaluated, capsys):
    scoring.main([*evaluated, "--lowercased-tokenized", "--setting", "average=2"])
    result = results.read(evaluated[-1])
    hypotheses = ['Ahoj, světe! <sep> Řekl: "Kočka spí."', "pes běží rychle."]
    assert result.hypotheses == {"test": hypotheses}
    sentences = ["Ahoj, světe!", 'Řekl: "Kočka spí."', "pes běží rychle.", ""]
    wanted = ["Ahoj, světe!", "Řekl: „Kočka spí.“", "Pes běží rychle.", "Vlak jede domů."]
    for name, metric in (("BLEU", BLEU()), ("chrF2", CHRF())):
        joined = metric.corpus_score(hypotheses, [REFERENCES]).score
        assert result.scores(name) == {"test": pytest.approx(joined)}
        split = metric.corpus_score(sentences, [wanted]).score
        assert result.scores(name, SPLIT) == {"test": pytest.approx(split)}
    assert result.scores("TER", SPLIT)["test"] == TER().corpus_score(sentences, [wanted]).score
    assert result.scores("TER", AS_IN_PAPER) == {}
    tokenized = ["ahoj , světe !", "řekl : &quot; kočka spí . &quot;", "pes běží rychle .", ""]
    reference = ["ahoj , světe !", "řekl : „ kočka spí . “", "pes běží rychle ."]
    reference.append("vlak jede domů .")
    expected = BLEU(tokenize="none", force=True).corpus_score(tokenized, [reference]).score
    assert result.scores(LOWERCASED_TOKENIZED, SPLIT)["test"] == pytest.approx(expected)
    signatures = result.signature["other_metrics"]
    assert signatures["chrF2"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0")
    assert signatures["TER"].startswith("nrefs:1|case:lc|tok:tercom")
    assert "case:lc|eff:no|tok:none" in signatures[LOWERCASED_TOKENIZED]
    output = capsys.readouterr().out
    assert f"macro average of test (split): TER {result.macro('test', SPLIT, 'TER'):.2f}" in output
    assert output.count("signature of ") == 4
    assert json.loads(Path(evaluated[-1]).read_text())["format"] == 1


def test_what_cannot_be_scored_is_refused_with_one_line(evaluated, tmp_path):
    def refused(message):
        with pytest.raises(UserError, match=message):
            scoring.main(evaluated)
        assert not (tmp_path / "result.json").exists()

    recipe = tmp_path / "save" / "recipe.txt"
    text = recipe.read_text()
    recipe.write_text(text.replace("MODEL=ape\n", ""))
    refused("lacks MODEL")
    recipe.write_text(text.replace("DATA_HASH=", "DATA_HASH=0"))
    refused("trained on other data")
    recipe.write_text(text)
    torch.save({"model": {"decoder.weight": torch.zeros(2)}}, tmp_path / "save" / "average.pt")
    refused("is no average")
    (tmp_path / "save" / "average.pt").write_bytes(b"")
    refused("average.pt is ")
    (tmp_path / "generated" / "test.txt").write_text("H-0\t-0.1\tpes\n")
    refused("1 translations of 2")
    (tmp_path / "generated" / "test.txt").unlink()
    refused("no translations of valid, test")
