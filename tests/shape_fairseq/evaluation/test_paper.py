import statistics

import pytest

from shape_fairseq.evaluation import paper


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
