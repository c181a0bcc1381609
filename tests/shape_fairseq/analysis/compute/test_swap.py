from shape_fairseq.analysis.compute import swap


def test_the_sentence_that_moved_is_found_from_its_end():
    assert swap.at(swap.PLACES["original"], [["a", "b", "c"]]) == ["a"]
    # A <sep> that is missing elsewhere costs nothing.
    assert swap.at(swap.PLACES["swapped"], [["b c", "a"]]) == ["a"]
