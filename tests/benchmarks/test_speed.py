import json
import sys

import pytest
import torch

from benchmarks import speed
from benchmarks.lookup_attention import LookupMultiheadAttention
from shape_fairseq.modules.relative_attention import RelativeMultiheadAttention
from tests import processes


@pytest.mark.parametrize("causal", [False, True])
def test_the_other_formulation_computes_the_same(causal):
    torch.manual_seed(0)
    options = {"self_attention": True, "max_relative_distance": 3, "causal": causal}
    ours = RelativeMultiheadAttention(8, 2, **options).double()
    theirs = LookupMultiheadAttention(8, 2, **options).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(9, 2, 8, dtype=torch.double)
    mask = torch.full((9, 9), -torch.inf, dtype=torch.double).triu(1) if causal else None
    results = []
    for module in (ours, theirs):
        output, _ = module(x, x, x, attn_mask=mask, need_weights=False)
        output.square().sum().backward()
        results.append([output, *(parameter.grad for parameter in module.parameters())])
    for mine, reference in zip(*results, strict=True):
        torch.testing.assert_close(mine, reference)


@pytest.mark.slow
def test_nothing_but_the_help_is_printed():
    """fairseq turns on the debug messages of all packages."""
    result = processes.succeed(processes.run(sys.executable, "-m", "benchmarks.speed", "--help"))
    assert result.stdout.startswith("usage:") and "DEBUG" not in result.stderr


@pytest.mark.slow
def test_bench_measures_all_levels_and_writes_all_files(tmp_path, capsys):
    options = ["--tiny", "--cpu", "--lengths", "27", "6", "--tokens", "54", "--turns", "2"]
    speed.main([*options, "--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.png", "bench.svg"}
    levels = json.loads((tmp_path / "bench.json").read_text())["result"]["levels"]
    assert list(levels) == list(speed.LEVELS)
    for level, by_length in levels.items():
        assert list(by_length) == ["6", "27"]
        for cell in by_length.values():
            assert tuple(cell) == speed.LEVELS[level].models
            for measured in cell.values():
                assert len(measured["turns"]) == 2 and min(measured["turns"]) > 0
                assert measured["range"][0] <= measured["speed"] <= measured["range"][1]
            assert cell["ape"]["speed"] == 1
    # SHAPE adds nothing but a number to positions.
    memory = {model: measured["memory"] for model, measured in levels["training"]["27"].items()}
    assert memory["ape"] <= memory["shape"] < 1.05 * memory["ape"]
    printed = capsys.readouterr().out
    assert "RPE training step / APE" in printed and "no room" not in printed


@pytest.mark.slow
def test_bench_of_chosen_models_shows_no_others(tmp_path, capsys):
    options = ["--tiny", "--cpu", "--lengths", "27", "--tokens", "54", "--turns", "1"]
    options += ["--levels", "training", "--models", "shape", "--out", str(tmp_path)]
    speed.main(options)
    printed = capsys.readouterr().out
    assert "SHAPE training step / APE" in printed and "RPE" not in printed


def test_a_goal_is_met_or_missed():
    at_least = next(goal for goal in speed.GOALS if not goal.at_most)
    at_most = next(goal for goal in speed.GOALS if goal.at_most)
    assert at_least.met(at_least.wanted) and not at_least.met(at_least.wanted - 0.01)
    assert at_most.met(at_most.wanted) and not at_most.met(at_most.wanted + 0.01)
    slow = {"training": {27: {"rpe": {"speed": 0.5}, "shape": {"speed": 1.0}}}}
    verdicts = [row[-1] for row in speed.goal_rows(slow)]
    assert verdicts == ["met", "MISSED"]


def test_what_does_not_fit_is_not_tried():
    cpu = torch.device("cpu")
    assert speed.too_large(speed.LOOKUP, "training", 1_000_000, cpu)
    assert not speed.too_large("rpe", "training", 1_000_000, cpu)
    assert not speed.too_large(speed.LOOKUP, "training", 27, cpu)


@pytest.mark.slow
def test_memory_tells_blocks_from_all_pairs_of_positions():
    conditions = speed.Conditions("_tiny", 500, tokens=400, device=torch.device("cpu"))
    cell = speed.measure("attention", 400, list(speed.TITLES), 1, conditions)
    pairs = 2 * 400 * 400 * 64 * 4  # bytes of the looked up keys and values
    assert cell["lookup"]["memory"] > pairs > 2 * cell["rpe"]["memory"]
