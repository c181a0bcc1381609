"""Averaging, scoring and tables on small inputs whose answers are known."""

import dataclasses
import statistics

import pytest
import torch

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import (
    averaging,
    checkpoints,
    max_shift,
    paper,
    results,
    scoring,
    tables,
)
from shape_fairseq.evaluation.results import ALL, SPLIT, Result
from shape_fairseq.evaluation.significance import compare_all

GROUPS = {"valid": list(paper.NEWSTESTS[:4]), "test": list(paper.NEWSTESTS[4:])}


def make_result(setting="vanilla", model="ape", seed=1, bleu=20.0, **changes) -> Result:
    """A result on WMT'16 whose newstests score bleu, bleu + 1, ..."""
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


def row_of(table: tables.Table, *start: str) -> list[str]:
    (row,) = [row for row in table.rows if row and tuple(row[: len(start)]) == start]
    return row[len(start) :]


def only(*found: Result) -> tables.Cells:
    (cells,) = tables.by_data(list(found))
    return cells


def save_checkpoint(folder, updates: int, embedding: float, bias: float) -> None:
    shared = torch.full((3, 2), embedding, dtype=torch.float16)
    model = {
        "encoder.embed_tokens.weight": shared,
        "decoder.embed_tokens.weight": shared,
        "decoder.bias": torch.full((5,), bias),
        "encoder.version": torch.tensor([3.0]),
    }
    extra = {"previous_training_time": 1.0 * updates}
    state = {"model": model, "extra_state": extra, "last_optimizer_state": {"big": 1}}
    torch.save(state, folder / f"checkpoint_1_{updates}.pt")


def test_the_newest_checkpoints_are_averaged_in_fp32(tmp_path):
    for updates, value in ((5, 100.0), (90, 1.0), (100, 2.0)):
        save_checkpoint(tmp_path, updates, embedding=value, bias=10 * value)
    output = tmp_path / "average.pt"
    averaging.main([str(tmp_path), "--number", "2", "--output", str(output)])
    state = torch.load(output)
    model = state["model"]
    assert torch.equal(model["encoder.embed_tokens.weight"], torch.full((3, 2), 1.5))
    assert torch.equal(model["decoder.embed_tokens.weight"], torch.full((3, 2), 1.5))
    assert torch.equal(model["decoder.bias"], torch.full((5,), 15.0))
    assert state["extra_state"]["averaged_updates"] == [90, 100]
    assert state["extra_state"]["previous_training_time"] == 100.0
    assert state["extra_state"]["parameters"] == 3 * 2 + 5
    assert "last_optimizer_state" not in state
    with pytest.raises(UserError, match="exists already"):
        averaging.main([str(tmp_path), "--number", "3", "--output", str(output)])


def test_too_few_or_damaged_checkpoints_are_refused(tmp_path):
    save_checkpoint(tmp_path, 5, 1.0, 1.0)
    output = tmp_path / "average.pt"
    with pytest.raises(UserError, match="has 1 checkpoints and 10 are to be averaged"):
        averaging.main([str(tmp_path), "--output", str(output)])
    (tmp_path / "checkpoint_1_6.pt").write_bytes(b"half a file")
    with pytest.raises(UserError, match="checkpoint_1_6.pt is no checkpoint"):
        averaging.main([str(tmp_path), "--number", "2", "--output", str(output)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_1_5.pt",
        "checkpoint_1_6.pt",
    ]


def test_parameters_of_a_real_model_are_counted(build):
    for arch in ("transformer_tiny", "transformer_rpe_tiny"):
        model = build(arch)
        learned = sum(one.numel() for one in model.parameters() if one.requires_grad)
        assert checkpoints.count_parameters(model.state_dict()) == learned


def test_subsets_have_groups_and_names(tmp_path):
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "subsets.tsv").write_text(
        "subset\tparts\tsacrebleu\nvalid\tnewstest2010 newstest2011\t\ntest\tnewstest2014\t\n"
        "newstest2010\tnewstest2010\twmt10\nnewstest2014\tnewstest2014\twmt14/full\n"
    )
    groups, names = scoring.read_subsets(tmp_path)
    assert groups == {"valid": ["newstest2010", "newstest2011"], "test": ["newstest2014"]}
    assert names == {"newstest2010": "wmt10", "newstest2014": "wmt14/full"}


def test_hypotheses_are_sorted_and_must_be_complete(tmp_path):
    path = tmp_path / "valid.txt"
    path.write_text("S-1\tb\nH-1\t-0.5\tzwei\nD-1\t-0.5\tzwei\nH-0\t-0.1\tei@@ ns\nH-2\t-1\t\n")
    assert scoring.read_hypotheses(path) == ["ei@@ ns", "zwei", ""]
    path.write_text("H-0\t-0.1\teins\nH-2\t-0.1\tdrei\n")
    with pytest.raises(UserError, match="lacks translations"):
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


def test_the_papers_tables_agree_with_each_other():
    # Table 2 is made of table 5: this finds a number that was copied wrongly. The paper rounds
    # averages of unrounded scores of five seeds, so the last digit may differ.
    for cell, (*scores, average, speed) in paper.TABLE_5.items():
        valid, test, speed_of_table_2 = paper.TABLE_2[cell]
        assert statistics.fmean(scores[:4]) == pytest.approx(valid, abs=0.0101)
        assert statistics.fmean(scores[4:]) == pytest.approx(test, abs=0.0101)
        assert statistics.fmean(scores) == pytest.approx(average, abs=0.0101)
        assert speed == speed_of_table_2
    for *scores, average in paper.TABLE_7.values():
        assert statistics.fmean(scores) == pytest.approx(average, abs=0.0101)
    assert paper.TABLE_7["OpenNMT-py"] == paper.TABLE_5["vanilla", "ape"][:-1]


def test_speeds_of_the_paper_follow_from_its_times():
    for (setting, model), (_, seconds, _) in paper.TABLE_6.items():
        baseline = paper.TABLE_6[setting, "ape"][1]
        assert baseline / seconds == pytest.approx(paper.TABLE_2[setting, model][2], abs=0.0051)


def test_macro_averages():
    result = make_result(bleu=20.0)
    assert result.macro("valid") == 21.5 and result.macro("test") == 25.0
    assert result.macro(ALL) == 23.0
    assert result.macro("valid", SPLIT) is None
    del result.bleu["as_in_paper"]["newstest2012"]
    assert result.macro("valid") is None and result.macro(ALL) is None


def test_table_2_has_the_seeds_mean_beside_the_papers_number():
    slower = {"updates": 100, "seconds": 62.5, "parameters": 61, "hardware": "8 x V100"}
    table = tables.table_2(
        only(
            make_result(seed=1, bleu=20.0),
            make_result(seed=2, bleu=22.0),
            make_result(model="rpe", training=slower),
        )
    )
    assert row_of(table, "VANILLA", "APE", "ours") == [
        "22.50 ±1.41", "26.00 ±1.41", "x1.00", "2",
    ]  # fmt: skip
    assert row_of(table, "VANILLA", "APE", "paper") == ["23.61", "30.46", "x1.00", "5"]
    assert row_of(table, "VANILLA", "RPE", "ours") == ["21.50", "25.00", "x0.80", "1"]
    assert row_of(table, "INTERPOLATE", "SHAPE", "ours") == ["missing"] * 4
    assert row_of(table, "INTERPOLATE", "RPE", "paper") == ["-"] * 4


def test_a_tuned_shift_has_a_row_of_its_own():
    shape = make_result("extrapolate", "shape", max_shift=40)
    table = tables.table_2(only(make_result("extrapolate"), shape))
    assert row_of(table, "EXTRAPOLATE", "SHAPE (K=40)", "ours")[:2] == ["21.50", "25.00"]
    theirs = row_of(table, "EXTRAPOLATE", "SHAPE (K=40)", "paper")
    assert theirs == ["23.12", "29.86", "-", "1"]
    assert row_of(table, "EXTRAPOLATE", "SHAPE", "ours")[0] == "missing"


def test_tables_5_6_and_7():
    cells = only(make_result(), make_result("scaling_nmt", bleu=30.0))
    assert row_of(tables.table_5(cells), "VANILLA", "APE", "ours")[:8] == [
        *(f"{20 + number}.00" for number in range(7)),
        "23.00",
    ]
    times = tables.table_6(cells)
    assert row_of(times, "VANILLA", "APE", "ours") == ["8 x V100", "50", "100", "61", "x1.00"]
    assert row_of(times, "INTERPOLATE", "SHAPE", "paper") == [
        "DGX-2", "69,529", "200,000", "61M", "x0.99",
    ]  # fmt: skip
    recipes = tables.table_7(cells)
    assert row_of(recipes, "APE", "fairseq's recipe", "ours")[-2:] == ["33.00", "1"]
    assert row_of(recipes, "APE", "the paper's recipe", "ours")[-2:] == ["23.00", "1"]
    assert row_of(recipes, "APE", "fairseq", "paper")[-2:] == ["26.59", "5"]


def test_speed_is_not_compared_across_hardware():
    other = {"updates": 100, "seconds": 5.0, "parameters": 61, "hardware": "8 x A100"}
    cells = only(make_result(), make_result(model="rpe", training=other))
    assert row_of(tables.table_2(cells), "VANILLA", "RPE", "ours")[2] == "other hardware"


def test_other_data_gets_tables_without_the_papers_numbers():
    demo = make_result(signature=make_result().signature | {"data": {"DATA": "demo"}})
    first, second = tables.by_data([make_result(), demo])
    assert any(row and row[2] == "paper" for row in tables.table_2(first).rows)
    assert not any(row and row[2] == "paper" for row in tables.table_2(second).rows)


def test_seeds_that_differ_in_more_are_not_averaged():
    wider = {**make_result().signature, "generation": {"beam": "5"}}
    with pytest.raises(UserError, match="seeds 1 and 2 differ in generation"):
        only(make_result(), make_result(seed=2, signature=wider))
    shorter = {**make_result().training, "updates": 50}
    with pytest.raises(UserError, match="seeds 1 and 2 differ in updates"):
        only(make_result(), make_result(seed=2, training=shorter))
    with pytest.raises(UserError, match="two results of APE on vanilla with seed 1"):
        only(make_result(), make_result())


def test_all_formats_hold_the_same_cells(tmp_path, capsys):
    path = tmp_path / "result.json"
    results.write(make_result("interpolate"), path)
    printed = {}
    for name in tables.FORMATS:
        tables.main([str(path), "--format", name, "--table", "2"])
        printed[name] = capsys.readouterr().out
        assert "21.50" in printed[name] and "31.40" in printed[name] and "missing" in printed[name]
    assert printed["markdown"].count("\n|---|") == 1
    rows = [line for line in printed["latex"].splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {6}
    assert r"$<$sep$>$" in printed["latex"] and "<sep>" not in printed["latex"]


def test_files_that_are_no_results_are_refused(tmp_path):
    path = tmp_path / "other.json"
    for text in ("{}", "[1]", "no json"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"other\.json is no result"):
            results.read(path)


def test_significance_tells_better_from_equal():
    references = [f"Satz {i} hat {i * 7 % 11} Wörter und {i * 5 % 13} Silben" for i in range(60)]
    worse = [" ".join(reversed(line.split())) for line in references]
    texts = dict.fromkeys(sum(GROUPS.values(), []), references)
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


def test_the_best_shift_is_reported(tmp_path, capsys):
    paths = []
    for shift, bleu in ((10, 20.0), (40, 25.0), (500, 25.0)):
        paths.append(str(tmp_path / f"{shift}.json"))
        results.write(make_result("extrapolate", "shape", bleu=bleu, max_shift=shift), paths[-1])
    max_shift.main(paths)
    assert capsys.readouterr().out.splitlines() == [
        "max-shift 10: BLEU 21.50 on valid",
        "max-shift 40: BLEU 26.50 on valid",
        "max-shift 500: BLEU 26.50 on valid",
        "best: 40",
    ]
    with pytest.raises(UserError, match="give one of them"):
        max_shift.main([paths[0], paths[0]])
