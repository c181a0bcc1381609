import hashlib
from collections import Counter
from itertools import islice

import pytest

from data_prep.demo_corpus import Generator, generate

PAIRS = list(islice(generate(1), 3000))


def test_same_corpus_on_every_python():
    text = "".join(f"{english}\t{german}\n" for english, german in PAIRS)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "a56848e6ddd2ad790b1c85c4799cc96b8b4906d1616295e3d8de3b580cebd553"
    )


def test_another_seed_is_another_corpus():
    assert list(islice(generate(2), 20)) != PAIRS[:20]


def test_less_nesting_makes_shorter_sentences_with_some_long_ones():
    lengths = [len(english.split()) for english, _ in islice(generate(1, nesting=0.4), 1000)]
    assert sum(lengths) / len(lengths) < 12
    assert max(lengths) > 25


def test_no_sentence_twice():
    assert len({english for english, _ in PAIRS}) == len(PAIRS)


def test_names_are_copied_and_sentences_are_well_formed():
    for english, german in PAIRS:
        assert english[0].isupper() and english.endswith(".") and german.endswith(".")
        assert ",," not in german and "  " not in german and ",." not in german
        names = {w.strip(",.") for w in english.split()[1:] if w[0].isupper()}
        assert names <= {w.strip(",.") for w in german.split()}


def test_verbs_end_german_subordinate_clauses():
    simple = [g for _, g in PAIRS if g.count(",") == 1 and ", dass " in g]
    assert len(simple) > 50
    verbs = {"sieht", "kennt", "liebt", "findet", "anruft", "kauft", "hat", "haben"}
    last_words = Counter(german.rstrip(".").split()[-1] for german in simple)
    assert sum(last_words[verb] for verb in verbs) > 0.6 * len(simple)


@pytest.mark.parametrize(
    ("case", "endings"), [("nom", {"alter Mann", "alte Frau", "altes Kind"}),
                          ("acc", {"alten Mann", "alte Frau", "altes Kind"}),
                          ("dat", {"alten Mann", "alten Frau", "alten Kind"})]
)  # fmt: skip
def test_adjectives_agree(case, endings):
    generator = Generator(3)
    phrases = (" ".join(generator.phrase(case, 0).german) for _ in range(60_000))
    nouns = ("Mann", "Frau", "Kind")
    matching = {p.split(" ", 1)[1] for p in phrases if p.startswith("ein") and p.endswith(nouns)}
    assert {phrase for phrase in matching if phrase.startswith("alt") and " " in phrase
            and len(phrase.split()) == 2 and phrase.split()[1] in nouns} == endings  # fmt: skip


def test_lengths_spread_and_words_have_a_rare_tail():
    lengths = sorted(len(english.split()) for english, _ in PAIRS)
    assert lengths[len(lengths) // 10] <= 8 and lengths[-len(lengths) // 20] >= 40
    words = Counter(word for _, german in PAIRS for word in german.split())
    assert sum(count == 1 for count in words.values()) > len(words) / 4


def test_command(tmp_path, lines, commands):
    sizes = ("--train", 30, "--valid", 4, "--test", 5)
    run = commands.module("data_prep.demo_corpus", "--output", tmp_path / "raw", *sizes)
    assert run.returncode == 0, run.stderr
    made = [lines(tmp_path / "raw" / f"{name}.en") for name in ("valid", "test", "train")]
    assert [len(text) for text in made] == [4, 5, 30]
    assert sum(made, []) == [english for english, _ in PAIRS[:39]]
