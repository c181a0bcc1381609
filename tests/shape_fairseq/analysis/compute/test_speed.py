import pytest
import torch

from shape_fairseq.analysis.compute import speed


def test_speed_is_the_median_of_the_ratios_within_a_turn():
    summary = speed.summarize({"ape": [1.0, 10.0, 1.0], "rpe": [2.0, 20.0, 1.0]})
    assert summary["ape"]["speed"] == 1 and summary["rpe"]["speed"] == 0.5


def test_peak_memory_is_what_a_step_holds_at_most():
    def step(turn: int) -> None:
        first = torch.ones(1000, 1000)
        second = first + 1
        del first
        second * 2

    assert speed.peak_memory(step, torch.device("cpu")) == pytest.approx(8e6, rel=0.01)
