from shape_fairseq.analysis.compute import token_scores


def test_frequencies_are_told_apart_by_their_digits():
    assert [token_scores.frequency_bucket(n) for n in (0, 1, 9, 10, 99, 100)] == [0, 1, 1, 2, 2, 3]
    assert token_scores.frequency_names(3) == ["unseen", "1–9", "10–99"]
