"""A seeded English-like to German-like corpus: enough grammar that word order matters.

Verbs go to the end of German subordinate clauses and participles and particles to the end of main
clauses, a fronted adverb turns subject and verb around, articles and adjectives agree in case,
gender and number, compounds are written in one word, names are copied, words follow Zipf's law,
and relative clauses, "that" clauses and conjunctions nest to very different lengths.
"""

import argparse
import logging
import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from data_prep.settings import write_pairs
from shape_fairseq.command_line import Parser, positive
from shape_fairseq.errors import run

log = logging.getLogger(__name__)

Words = list[str]


class Noun(NamedTuple):
    """An English noun and its German translation; gender is m, f or n."""

    english: str
    german: str
    german_plural: str
    gender: str


class Verb(NamedTuple):
    """A verb: English third person and participle; German he, they, participle, particle."""

    english: str
    english_participle: str
    german: str
    german_plural: str
    german_participle: str
    particle: str = ""


class Phrase(NamedTuple):
    """A noun phrase in both languages."""

    english: Words
    german: Words
    plural: bool


NOUNS = [
    Noun(*line.split())
    for line in """
    man Mann Männer m|woman Frau Frauen f|child Kind Kinder n|dog Hund Hunde m|cat Katze Katzen f
    house Haus Häuser n|book Buch Bücher n|teacher Lehrer Lehrer m|city Stadt Städte f
    friend Freund Freunde m|horse Pferd Pferde n|doctor Arzt Ärzte m|letter Brief Briefe m
    picture Bild Bilder n|girl Mädchen Mädchen n|river Fluss Flüsse m|flower Blume Blumen f
    king König Könige m|queen Königin Königinnen f|tree Baum Bäume m|road Straße Straßen f
    bird Vogel Vögel m|ship Schiff Schiffe n|garden Garten Gärten m|school Schule Schulen f
    village Dorf Dörfer n|window Fenster Fenster n|table Tisch Tische m|song Lied Lieder n
    bridge Brücke Brücken f|farmer Bauer Bauern m|train Zug Züge m|lamp Lampe Lampen f
    wall Wand Wände f|key Schlüssel Schlüssel m|clock Uhr Uhren f|castle Schloss Schlösser n
    stone Stein Steine m|mountain Berg Berge m|neighbour Nachbar Nachbarn m|glass Glas Gläser n
    answer Antwort Antworten f|question Frage Fragen f|story Geschichte Geschichten f
    judge Richter Richter m|singer Sänger Sänger m|nurse Schwester Schwestern f|boat Boot Boote n
    forest Wald Wälder m|market Markt Märkte m|bag Tasche Taschen f|knife Messer Messer n
    """.replace("\n", "|").split("|")
    if line.strip()
]
# First parts of compounds with the letter that German puts between the parts.
COMPOUND_PARTS = dict(
    part.split()
    for part in """winter Winter|summer Sommer|garden Garten|city Stadt|school Schul|work Arbeits
    forest Wald|stone Stein|iron Eisen|water Wasser|fire Feuer|night Nacht|paper Papier
    gold Gold|holiday Urlaubs|freedom Freiheits|world Welt|state Staats""".replace("\n", "|").split(
        "|"
    )
)
ADJECTIVES = dict(
    pair.split()
    for pair in """old alt|big groß|small klein|young jung|new neu|good gut|red rot|green grün
    beautiful schön|quiet still|clever klug|tired müde|rich reich|poor arm|heavy schwer
    strange fremd|warm warm|cold kalt|famous berühmt|happy froh|brave mutig|dirty schmutzig
    round rund|soft weich|narrow eng|wise weise|lonely einsam|cheap billig""".replace(
        "\n", "|"
    ).split("|")
)
VERBS = [
    Verb(*line.split())
    for line in """sees seen sieht sehen gesehen|knows known kennt kennen gekannt
    loves loved liebt lieben geliebt|finds found findet finden gefunden
    calls called ruft rufen angerufen an|buys bought kauft kaufen gekauft
    seeks sought sucht suchen gesucht|opens opened macht machen aufgemacht auf
    paints painted malt malen gemalt|hears heard hört hören gehört
    brings brought bringt bringen mitgebracht mit|needs needed braucht brauchen gebraucht
    invites invited lädt laden eingeladen ein|asks asked fragt fragen gefragt
    carries carried trägt tragen getragen|forgets forgotten vergisst vergessen vergessen
    closes closed macht machen zugemacht zu|greets greeted grüßt grüßen gegrüßt
    watches watched schaut schauen angeschaut an|draws drawn zeichnet zeichnen gezeichnet
    loses lost verliert verlieren verloren|sells sold verkauft verkaufen verkauft
    fetches fetched holt holen abgeholt ab|praises praised lobt loben gelobt""".replace(
        "\n", "|"
    ).split("|")
]
SPEECH = [
    Verb(*line.split())
    for line in """says said sagt sagen gesagt|believes believed glaubt glauben geglaubt
    thinks thought denkt denken gedacht|hopes hoped hofft hoffen gehofft
    writes written schreibt schreiben geschrieben|fears feared fürchtet fürchten gefürchtet
    dreams dreamt träumt träumen geträumt""".replace("\n", "|").split("|")
]
ADVERBS = dict(
    pair.split()
    for pair in """today heute|often oft|now jetzt|never nie|here hier|always immer|soon bald
    yesterday gestern|sometimes manchmal|again wieder|there dort""".replace("\n", "|").split("|")
)
PREPOSITIONS = {"with": "mit", "from": "von", "near": "bei", "after": "nach"}  # all with dative
CONJUNCTIONS = {"and": "und", "but": "aber", "or": "oder"}  # verb stays second
SUBJUNCTIONS = {"because": "weil", "while": "während", "if": "wenn", "before": "bevor"}
SYLLABLES = ["ka", "lo", "mi", "ra", "ten", "vo", "sel", "du", "ri", "no"]
SYLLABLES += ["ba", "fe", "gu", "han", "ji", "pol", "tar", "wen", "zo", "lim"]

DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
INDEFINITE = {"nom": " e ", "acc": "en e ", "dat": "em er em"}
RELATIVE = {"nom": "der die das die", "acc": "den die das die"}
# Adjective endings for m, f, n, plural: after the definite article, and after ein or nothing.
WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "en en en en"}


class Generator:
    """Draws sentence pairs; the same seed gives the same pairs on every Python version."""

    def __init__(self, seed: int, nesting: float = 1.0) -> None:
        # Only random() is used: it is the one method that Python promises not to change.
        self._random = random.Random(seed).random
        self._nesting = nesting

    def sentence(self) -> tuple[str, str]:
        """One sentence pair as plain text."""
        depth = 1 + self._nests(0.7) + self._nests(0.45) + self._nests(0.35)
        english, german = self.main_clause(depth)
        while self._nests(0.3):
            more_english, more_german = self._next_clause(depth)
            english, german = [*english, *more_english], [*german, *more_german]
        return _as_text(english), _as_text(german)

    def _next_clause(self, depth: int) -> tuple[Words, Words]:
        if self._chance(0.5):
            word, translation = self._pick(CONJUNCTIONS)
            english, german = self.main_clause(depth - 1)
        else:
            word, translation = self._pick(SUBJUNCTIONS)
            english, german = self.subordinate_clause(depth - 1)
        return [",", word, *english], [",", translation, *german]

    def main_clause(self, depth: int) -> tuple[Words, Words]:
        """A clause with the German verb in second place."""
        subject, adverb, fronted = self.phrase("nom", depth), self._adverb(), self._chance(0.4)
        verb, rest, complement = self._predicate(depth)
        english_verb, finite, ending = self._conjugate(verb, subject.plural, final=False)
        middle, german_rest, tail = adverb[1], rest[1], complement[1]
        if fronted and adverb[0]:
            english = [*adverb[0], *subject.english, *english_verb, *rest[0], *complement[0]]
            german = [*middle, finite, *subject.german, *german_rest, *ending, *tail]
        else:
            english = [*subject.english, *english_verb, *rest[0], *adverb[0], *complement[0]]
            german = [*subject.german, finite, *middle, *german_rest, *ending, *tail]
        return english, german

    def subordinate_clause(self, depth: int) -> tuple[Words, Words]:
        """A clause with the German verb at its end."""
        subject, adverb = self.phrase("nom", depth), self._adverb()
        verb, rest, complement = self._predicate(depth)
        english_verb, finite, ending = self._conjugate(verb, subject.plural, final=True)
        english = [*subject.english, *english_verb, *rest[0], *adverb[0], *complement[0]]
        german = [*subject.german, *adverb[1], *rest[1], *ending, finite, *complement[1]]
        return english, german

    def phrase(self, case: str, depth: int) -> Phrase:
        """A noun phrase: a name, or article, adjectives, noun and perhaps a relative clause."""
        if self._chance(0.18):
            name = self._name()
            return Phrase([name], [name], plural=False)
        noun, plural = self._noun(), self._chance(0.3)
        column = 3 if plural else "mfn".index(noun.gender)
        definite = self._chance(0.6)
        endings = (WEAK if definite else STRONG)[case].split()
        adjectives = [self._pick(ADJECTIVES) for _ in range(self._chance(0.4) + self._chance(0.1))]
        english = [word for word, _ in adjectives]
        german = [*_german_article(definite, case, column)]
        german += [_decline(stem, endings[column]) for _, stem in adjectives]
        english.append(_english_plural(noun.english) if plural else noun.english)
        english = [*_english_article(definite, plural, english[0]), *english]
        german.append(_german_noun(noun, plural, case))
        if depth > 0 and self._nests(0.3):
            relative_english, relative_german = self._relative_clause(column, depth - 1)
            english, german = [*english, *relative_english], [*german, *relative_german]
        return Phrase(english, german, plural)

    def _relative_clause(self, column: int, depth: int) -> tuple[Words, Words]:
        verb = self._zipf(VERBS)
        if self._chance(0.5):
            pronoun, other = RELATIVE["nom"].split()[column], self.phrase("acc", depth)
            english_verb, finite, ending = self._conjugate(verb, column == 3, final=True)
            english = ["that", *english_verb, *other.english]
        else:
            pronoun, other = RELATIVE["acc"].split()[column], self.phrase("nom", depth)
            english_verb, finite, ending = self._conjugate(verb, other.plural, final=True)
            english = ["that", *other.english, *english_verb]
        return english, [",", pronoun, *other.german, *ending, finite, ","]

    def _predicate(self, depth: int) -> tuple[Verb, tuple[Words, Words], tuple[Words, Words]]:
        """A verb with its objects, and the "that" clause that follows a verb of speech."""
        if depth > 0 and self._nests(0.35):
            english, german = self.subordinate_clause(depth - 1)
            return self._zipf(SPEECH), ([], []), (["that", *english], [",", "dass", *german, ","])
        thing = self.phrase("acc", depth)
        english, german = [*thing.english], [*thing.german]
        if self._nests(0.35):
            word, translation = self._pick(PREPOSITIONS)
            place = self.phrase("dat", depth - 1)
            english += [word, *place.english]
            german += [translation, *place.german]
        return self._zipf(VERBS), (english, german), ([], [])

    def _conjugate(self, verb: Verb, plural: bool, final: bool) -> tuple[Words, str, Words]:
        """English verb, German finite verb, and what stands at the end of the German clause."""
        if self._chance(0.4):
            auxiliary = ("have", "haben") if plural else ("has", "hat")
            return [auxiliary[0], verb.english_participle], auxiliary[1], [verb.german_participle]
        english = _without_s(verb.english) if plural else verb.english
        finite = verb.german_plural if plural else verb.german
        if final or not verb.particle:
            return [english], verb.particle + finite, []
        return [english], finite, [verb.particle]

    def _noun(self) -> Noun:
        noun = self._zipf(NOUNS)
        if not self._chance(0.15):
            return noun
        part, german = self._zipf(list(COMPOUND_PARTS.items()))
        return Noun(
            f"{part} {noun.english}",
            german + noun.german.lower(),
            german + noun.german_plural.lower(),
            noun.gender,
        )

    def _name(self) -> str:
        count = 2 + self._chance(0.4)
        return "".join(self._choice(SYLLABLES) for _ in range(count)).capitalize()

    def _adverb(self) -> tuple[Words, Words]:
        if not self._chance(0.35):
            return [], []
        english, german = self._pick(ADVERBS)
        return [english], [german]

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _nests(self, probability: float) -> bool:
        """Whether a sentence grows by one more clause or phrase."""
        return self._chance(probability * self._nesting)

    def _choice(self, items: list):
        return items[int(self._random() * len(items))]

    def _pick(self, translations: dict[str, str]) -> tuple[str, str]:
        return self._zipf(list(translations.items()))

    def _zipf(self, items: list):
        """An item whose frequency falls with its place in the list."""
        weights = list(accumulate(1 / (rank + 2) for rank in range(len(items))))
        return items[min(bisect(weights, self._random() * weights[-1]), len(items) - 1)]


def _english_article(definite: bool, plural: bool, next_word: str) -> Words:
    if definite:
        return ["the"]
    if plural:
        return []
    return ["an" if next_word[0] in "aeiou" else "a"]


def _german_article(definite: bool, case: str, column: int) -> Words:
    if definite:
        return [DEFINITE[case].split()[column]]
    return [] if column == 3 else ["ein" + INDEFINITE[case].split(" ")[column]]


def _decline(stem: str, ending: str) -> str:
    return stem.removesuffix("e") + ending


def _german_noun(noun: Noun, plural: bool, case: str) -> str:
    if not plural:
        return noun.german
    dative_n = case == "dat" and not noun.german_plural.endswith(("n", "s"))
    return noun.german_plural + "n" * dative_n


def _english_plural(noun: str) -> str:
    irregular = {"man": "men", "woman": "women", "child": "children", "knife": "knives"}
    first, last = noun.rpartition(" ")[::2]
    regular = last[:-1] + "ies" if last.endswith(("ty", "ry")) else last + "s"
    plural = irregular.get(last, "glasses" if last == "glass" else regular)
    return f"{first} {plural}" if first else plural


def _without_s(verb: str) -> str:
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    return verb[:-2] if verb.endswith(("ches", "shes")) else verb[:-1]


def _as_text(words: Words) -> str:
    """A sentence with a capital letter, a full stop, and commas only where something follows."""
    text = " ".join(words).replace(" ,", ",").rstrip(", ")
    while ",," in text:
        text = text.replace(",,", ",")
    return text[0].upper() + text[1:] + "."


def generate(seed: int, nesting: float = 1.0) -> Iterator[tuple[str, str]]:
    """Endless sentence pairs, none of them twice."""
    generator, seen = Generator(seed, nesting), set()
    while True:
        english, german = generator.sentence()
        if english not in seen:
            seen.add(english)
            yield english, german


def main() -> None:
    parser = Parser(
        prog="python -m data_prep.demo_corpus",
        description=__doc__.splitlines()[0],
        example="--output corpus --train 1000",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument("--train", type=positive, default=20_000, help="default: %(default)s")
    parser.add_argument("--valid", type=positive, default=500, help="default: %(default)s")
    parser.add_argument("--test", type=positive, default=500, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--nesting",
        type=fraction,
        default=1.0,
        help="how readily clauses are added, 0 to 1: less makes short sentences (default: 1)",
    )
    args = parser.parse_args()
    pairs = generate(args.seed, args.nesting)
    # Validation and test come first: they stay the same when more training text is asked for.
    for name in ("valid", "test", "train"):
        size = getattr(args, name)
        write_pairs((next(pairs) for _ in range(size)), args.output / name, ("en", "de"))
        log.info("demo %s: %s pairs", name, f"{size:,}")


def fraction(text: str) -> float:
    """An argparse type: a number from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return number


if __name__ == "__main__":
    run(main)
