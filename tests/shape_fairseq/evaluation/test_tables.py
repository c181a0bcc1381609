from shape_fairseq.evaluation import results, tables
from shape_fairseq.evaluation.cells import by_data
from shape_fairseq.evaluation.table import FORMATS, Table


def row_of(table: Table, *start: str) -> list[str]:
    (row,) = [row for row in table.rows if row and tuple(row[: len(start)]) == start]
    return row[len(start) :]


def test_table_2_has_the_seeds_mean_beside_the_papers_number(make_result, only):
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


def test_a_tuned_shift_has_a_row_of_its_own(make_result, only):
    shape = make_result("extrapolate", "shape", max_shift=40)
    table = tables.table_2(only(make_result("extrapolate"), shape))
    assert row_of(table, "EXTRAPOLATE", "SHAPE (K=40)", "ours")[:2] == ["21.50", "25.00"]
    theirs = row_of(table, "EXTRAPOLATE", "SHAPE (K=40)", "paper")
    assert theirs == ["23.12", "29.86", "-", "1"]
    assert row_of(table, "EXTRAPOLATE", "SHAPE", "ours")[0] == "missing"


def test_tables_5_6_and_7(make_result, only):
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


def test_speed_is_not_compared_across_hardware(make_result, only):
    other = {"updates": 100, "seconds": 5.0, "parameters": 61, "hardware": "8 x A100"}
    cells = only(make_result(), make_result(model="rpe", training=other))
    assert row_of(tables.table_2(cells), "VANILLA", "RPE", "ours")[2] == "other hardware"


def test_other_data_gets_tables_without_the_papers_numbers(make_result):
    demo = make_result(signature=make_result().signature | {"data": {"DATA": "demo"}})
    first, second = by_data([make_result(), demo])
    assert any(row and row[2] == "paper" for row in tables.table_2(first).rows)
    assert not any(row and row[2] == "paper" for row in tables.table_2(second).rows)


def test_all_formats_hold_the_same_cells(make_result, tmp_path, capsys):
    path = tmp_path / "result.json"
    results.write(make_result("interpolate"), path)
    printed = {}
    for name in FORMATS:
        tables.main([str(path), "--format", name, "--table", "2"])
        printed[name] = capsys.readouterr().out
        assert "21.50" in printed[name] and "31.40" in printed[name] and "missing" in printed[name]
    assert printed["markdown"].count("\n|---|") == 1
    rows = [line for line in printed["latex"].splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {6}
    assert r"$<$sep$>$" in printed["latex"] and "<sep>" not in printed["latex"]


def test_other_metrics_have_a_table_if_there_are_some(make_result, only, tmp_path, capsys):
    newstests = make_result().scores()
    ter = {name: 50 + number for number, name in enumerate(newstests)}
    scores = {"chrF2": {"as_in_paper": newstests}, "TER": {"as_in_paper": ter}}
    seeds = [make_result(seed=seed, other_metrics=scores) for seed in (1, 2)]
    table = tables.metrics_table(only(*seeds))
    assert table.header == ["Dataset", "Model", "Source", "chrF2", "TER", "Seeds"]
    assert row_of(table, "VANILLA", "APE") == ["ours", "25.00 ±0.00", "55.00 ±0.00", "2"]
    path = tmp_path / "result.json"
    results.write(make_result(), path)
    tables.main([str(path)])
    assert "chrF2" not in capsys.readouterr().out
