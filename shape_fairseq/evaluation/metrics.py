"""sacreBLEU's metrics: BLEU as the paper has it, chrF2, TER, and lowercased tokenized BLEU."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacreBLEUMetric

from ..parallel import map_chunks

TER_CHUNK = 50  # so few pairs are worth a process: TER grows with the cube of the length


class Metric:
    """A score of translations against one reference each, and all that moves it."""

    def __init__(self, metric: SacreBLEUMetric):
        self.metric = metric

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
        return self.metric.corpus_score(hypotheses, [references]).score

    def signature(self) -> str:
        """sacreBLEU's signature; there is one after the first score."""
        return self.metric.get_signature().format()


class ParallelTER(Metric):
    """sacreBLEU's TER on all cores."""

    def __init__(self):
        super().__init__(TER())
        self.metric.corpus_score(["a"], [["a"]])  # so that it has a signature

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
        pairs = zip(hypotheses, references, strict=True)
        counts = list(map_chunks(count_edits, pairs, chunk_size=TER_CHUNK))
        edits, words = map(sum, zip(*counts, strict=True))
        return 100 * edits / words if words else 100.0 * (edits > 0)


def count_edits(pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """The edits that translations need to become their references, and the references' words."""
    hypotheses, references = zip(*pairs, strict=True)
    total = TER().corpus_score(hypotheses, [references])
    return total.num_edits, total.ref_length


def bleu() -> Metric:
    """Cased BLEU of detokenized text."""
    return Metric(BLEU())


def chrf() -> Metric:
    """chrF2 of detokenized text."""
    return Metric(CHRF())


def lowercased_tokenized_bleu() -> Metric:
    """BLEU of text that is tokenized already, as many papers on Multi30k report it."""
    # force: sacreBLEU warns of tokenized text, which is what is wanted here.
    return Metric(BLEU(lowercase=True, tokenize="none", force=True))
