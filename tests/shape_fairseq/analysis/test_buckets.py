from shape_fairseq.analysis.buckets import Buckets


def test_no_bucket_holds_trained_and_untrained_lengths():
    buckets = Buckets.over([3, 20, 30, 31, 95], trained=30, width=8)
    assert buckets.ends[:5] == [6, 14, 22, 30, 38] and buckets.ends[-1] >= 95
    assert buckets.number(30) == 3 and buckets.number(31) == 4 and buckets.number(1000) == 12
    assert buckets.untrained(30)[:5] == [False] * 4 + [True]
    assert buckets.names()[3:5] == ["23–30", "31–38"]


def test_the_last_bucket_is_no_handful():
    lengths = [5] * 99 + [15] * 99 + [25] * 3 + [95]
    assert Buckets.over(lengths, trained=None, width=10, fewest=4).ends == [10, 20, 100]
    # ... but it never reaches back into the trained lengths.
    assert Buckets.over(lengths, trained=20, width=10, fewest=99).ends == [10, 20, 100]


def test_the_first_bucket_is_no_handful():
    lengths = [3] * 2 + [12] * 3 + [15] * 50 + [25] * 50
    assert Buckets.over(lengths, trained=None, width=5, fewest=4).ends == [15, 20, 25]
    # ... but it never reaches into the untrained lengths.
    assert Buckets.over(lengths, trained=10, width=5, fewest=4).ends == [10, 15, 20, 25]
