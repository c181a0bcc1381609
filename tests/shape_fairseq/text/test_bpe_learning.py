import gzip
import io
from collections import Counter
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from data_prep.demo_corpus import generate
from shape_fairseq.text.bpe_learning import learn_merges
from shape_fairseq.text.tokenizer import tokenize


def subword_nmt_merges(frequencies, number):
    """What the tool learns that fairseq's pages name."""
    learned = io.StringIO()
    learn_bpe([f"{word} {n}" for word, n in frequencies.items()], learned, number, is_dict=True)
    return [tuple(line.split(" ")) for line in learned.getvalue().split("\n")[1:-1]]


def merges_by_definition(frequencies, number):
    """All pairs counted again for every merge."""
    words = {(*word[:-1], word[-1] + "</w>"): n for word, n in frequencies.items()}
    for _ in range(number):
        counts = Counter()
        for word, frequency in words.items():
            for pair in zip(word, word[1:], strict=False):
                counts[pair] += frequency
        best = max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if best is None or counts[best] < 2:
            return
        yield best
        words = {replaced(word, best): frequency for word, frequency in words.items()}


def replaced(word, pair):
    symbols, rest = [], list(word)
    while rest:
        size = 2 if tuple(rest[:2]) == pair else 1
        symbols.append("".join(rest[:size]))
        del rest[:size]
    return tuple(symbols)


# Few letters make many ties, repetitions and overlaps (aaa), which is where a learner goes wrong.
WORDS = st.text("aabcß𝒳", min_size=1, max_size=9)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(WORDS, st.integers(1, 50), min_size=1, max_size=30))
def test_each_merge_is_the_most_frequent_pair(frequencies):
    learned = list(islice(learn_merges(frequencies), 40))
    assert learned == list(merges_by_definition(frequencies, 40))


def test_of_equally_frequent_pairs_the_alphabetically_last_goes_first():
    assert list(learn_merges({"ab": 3, "ac": 3, "b": 3})) == [("a", "c</w>"), ("a", "b</w>")]
    # "abc" comes after its beginning "ab", as in a dictionary.
    tied = {"xab": 2, "xabc": 2, "ab": 5, "abc": 5}
    assert list(learn_merges(tied))[-2:] == [("x", "abc</w>"), ("x", "ab</w>")]


def test_a_pair_that_occurs_once_is_not_merged():
    assert list(learn_merges({"ab": 1, "cd": 2})) == [("c", "d</w>")]
    assert list(learn_merges({"a": 9})) == []


def test_learns_what_subword_nmt_learns_from_the_demo_corpus():
    words = Counter(w for pair in islice(generate(1), 2000) for text in pair for w in text.split())
    assert list(islice(learn_merges(words), 500)) == subword_nmt_merges(words, 500)


def test_learns_what_subword_nmt_learns_from_real_text(multi30k):
    words = Counter()
    for lang in ("en", "de"):
        with gzip.open(multi30k / f"train.{lang}.gz", "rt", encoding="utf-8", newline="\n") as text:
            for line in islice(text, 5000):
                words.update(tokenize(line, lang).split())
    learned = list(islice(learn_merges(words), 2000))
    assert len(learned) == 2000 and learned == subword_nmt_merges(words, 2000)
