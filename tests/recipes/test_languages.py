"""Two languages that are neither English nor German, from anyone's text to `translate`."""

import json
import random
from pathlib import Path

import pytest

WORDS = {
    "fr": [
        "le",
        "chat",
        "noir",
        "voit",
        "un",
        "petit",
        "oiseau",
        "dans",
        "l'arbre",
        "et",
        "chante",
    ],
    "cs": ["černá", "kočka", "vidí", "malého", "ptáka", "na", "stromě", "a", "zpívá", "dnes"],
}
SIZES = {"train": 300, "valid": 9, "test": 9}


@pytest.fixture
def file(tmp_path) -> Path:
    """small.toml on a text of French and Czech words."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for lang, words in WORDS.items():
        for name, size in SIZES.items():
            chance = random.Random(name)  # the same lengths on both sides
            lines = (" ".join(chance.choices(words, k=chance.randint(3, 8))) for _ in range(size))
            (raw / f"{name}.{lang}").write_text("".join(f"{line} .\n" for line in lines))
    lines = Path(__file__).with_name("small.toml").read_text().splitlines()
    corpus = f'kind = "folder"\nraw = "{raw}"\nsource_lang = "fr"\ntarget_lang = "cs"\n'
    corpus += "bpe_merges = 40\ngroup_size = 3\nswapped_sample = 3"
    start, end = lines.index("[corpus]") + 1, lines.index("[training]")
    path = tmp_path / "languages.toml"
    path.write_text("\n".join([*lines[:start], corpus, *lines[end:]]))
    return path


def test_french_to_czech_from_a_folder_of_texts_to_translations(recipes, file, tmp_path):
    out, models = tmp_path / "out", 'models=["ape"]'
    options = ("--set", models, "--set", 'analysis.names=["length-bleu"]')
    recipes.shape_fairseq("experiment", file, "--out", out, *options)
    result = json.loads((out / "results" / "interpolate-ape-seed1.json").read_text())
    assert result["signature"]["data"]["TARGET_LANG"] == "cs"
    assert set(" ".join(result["references"]["test"]).split()) <= {*WORDS["cs"], ".", "<sep>"}
    assert "INTERPOLATE" in (out / "report.html").read_text()
    exported = tmp_path / "exported"
    checkpoint = out / "checkpoints/interpolate-ape-seed1/average-2-at-4.pt"
    recipes.shape_fairseq("export", checkpoint, "--to", "ctranslate2", exported)
    settings = json.loads((exported / "shape_fairseq.json").read_text())
    assert (settings["source_lang"], settings["target_lang"]) == ("fr", "cs")
    text = tmp_path / "raw" / "test.fr"
    translated = recipes.shape_fairseq("translate", exported, "--input", text, "--max-len-b", 5)
    assert translated.count("\n") == SIZES["test"]
