"""From a trained checkpoint to production: translations stay what fairseq-generate gives."""

from shape_fairseq.text import bpe
from tests.end_to_end.commands import USER_DIR, run
from tests.processes import shape_fairseq

# One sentence a batch: without the extension fairseq 0.12.2 fails on padding with torch 2.
ONE_BY_ONE = (
    *("--cpu", "--num-workers", "0"),
    *("--batch-size", "1", "--required-batch-size-multiple", "1"),
)


def lines_of(result, *kinds: str) -> list[str]:
    """The translations of fairseq-generate in the order of the test set."""
    lines = [line for line in result.stdout.splitlines() if line.startswith(kinds)]
    return sorted(lines, key=lambda line: (int(line.split("\t")[0][2:]), line))


def test_a_stock_fairseq_translates_with_shape(data, trained, tmp_path):
    checkpoint, stock = trained("transformer_shape_tiny"), tmp_path / "stock.pt"
    result = shape_fairseq("export", checkpoint, "--to", "fairseq", stock)
    assert result.returncode == 0, result.stderr
    options = (*ONE_BY_ONE, "--beam", "4", "--max-len-b", "20")
    ours = run("fairseq-generate", data, "--user-dir", USER_DIR, "--path", checkpoint, *options)
    plain = run("fairseq-generate", data, "--path", stock, *options)  # no --user-dir
    # Scores may differ in the last digit: fairseq 0.12.2 without the extension fuses its layers.
    translations = [
        [line.split("\t")[2] for line in lines_of(result, "H-")] for result in (ours, plain)
    ]
    assert len(translations[0]) == 20 and translations[0] == translations[1]


def test_raw_text_is_translated_as_fairseq_generate_does(data, trained, tmp_path):
    checkpoint, texts = trained("transformer_rpe_tiny"), data.parent
    codes, model = tmp_path / "codes", tmp_path / "model"
    bpe.learn([texts / "train.en"], 100, codes, workers=1)  # every word becomes one symbol
    # Greedy: a model that was hardly trained never ends, and beams end differently at the limit.
    search = ("--beam", "1", "--max-len-a", "1", "--max-len-b", "5")
    result = shape_fairseq(
        *("export", checkpoint, "--to", "ctranslate2", model, "--codes", codes), *search
    )
    assert result.returncode == 0, result.stderr
    generated = run(
        *("fairseq-generate", data, "--user-dir", USER_DIR, "--path", checkpoint),
        *(*ONE_BY_ONE, *search),
    )
    hypotheses = [line.split("\t")[2] for line in lines_of(generated, "H-")]
    first, rest = (texts / "test.en").read_text().split("\n", 1)
    result = shape_fairseq("translate", model, stdin=f"{first}\n\n{rest}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [hypotheses[0], "", *hypotheses[1:]]
