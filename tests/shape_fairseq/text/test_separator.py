import pytest

from shape_fairseq.text.separator import JOIN, split_joined


@pytest.mark.parametrize("sentences", [["a b", "c", "d ."], ["a"], ["", "b"], ["a", "", ""], [""]])
def test_splitting_is_the_inverse_of_joining(sentences):
    assert split_joined(JOIN.join(sentences)) == sentences


def test_separators_in_a_row_and_at_the_ends_bound_empty_sentences():
    assert split_joined("<sep> a <sep> <sep> b <sep>") == ["", "a", "", "b", ""]
    assert split_joined("a\t<sep>\n b") == ["a", "b"]


@pytest.mark.parametrize("line", ["a<sep>b", "a <sep>, b", "x<sep> b", "<SEP> b", "<sep@@ > b"])
def test_what_is_no_token_of_its_own_bounds_nothing(line):
    assert split_joined(line) == [line]
