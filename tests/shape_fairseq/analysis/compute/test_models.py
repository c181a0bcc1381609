"""Analyses run models on the languages of the data folder, whatever they are."""

import pytest
import torch

from data_prep.binarize import binarize
from shape_fairseq.analysis import base, similarity, swap, token_scores
from shape_fairseq.text.separator import SEPARATOR

# The models' vocabulary is w0 to w35; the last but the specials stands for <sep>.
SENTENCES = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9", "w2 w4 w6"]
JOINED = [f"{first} {SEPARATOR} {second}" for first in SENTENCES for second in SENTENCES[:2]]
SWAPPED = [f" {SEPARATOR} ".join(reversed(line.split(f" {SEPARATOR} "))) for line in JOINED]
LANGUAGES = ("fr", "cs")


@pytest.fixture
def french_czech(data_folder):
    """A data folder of French and Czech with data-bins of INTERPOLATE and of swapped sentences."""
    (data_folder / "parameters.txt").write_text("DATA=own\nSOURCE_LANG=fr\nTARGET_LANG=cs\n")
    dictionary = data_folder / "dict.txt"
    words = dictionary.read_text().splitlines()
    words[-1] = f"{SEPARATOR} 1"
    dictionary.write_text("".join(f"{word}\n" for word in words))
    texts = {
        "interpolate": {"train": JOINED, "valid": JOINED},
        "swapped": {"original": JOINED, "swapped": SWAPPED},
    }
    for setting, subsets in texts.items():
        for part in ("text", "reference"):
            folder = data_folder / part / setting
            folder.mkdir(parents=True)
            for subset, lines in subsets.items():
                for lang in LANGUAGES:
                    (folder / f"{subset}.{lang}").write_text("".join(f"{x}\n" for x in lines))
        text = data_folder / "text" / setting
        binarize(text, dictionary, data_folder / setting, LANGUAGES, workers=1)
    return data_folder


@pytest.fixture
def save_for_fairseq(save_checkpoint):
    """A checkpoint with random weights, and with all that fairseq's own loader looks for."""

    def save(arch: str, *options: str):
        path = save_checkpoint(arch, *options)
        state = torch.load(path)
        state["optimizer_history"][-1]["lr_scheduler_state"] = {}
        state["extra_state"] = {"train_iterator": {"epoch": 1}}
        torch.save(state, path)
        return path

    return save


def test_models_are_analysed_on_french_and_czech(french_czech, save_for_fairseq, tmp_path):
    models = [f"ape={save_for_fairseq('transformer_tiny')}"]
    models.append(f"shape={save_for_fairseq('transformer_shape_tiny', '--max-shift', '5')}")
    options = [*models, "--data", str(french_czech), "--out", str(tmp_path / "out"), "--cpu"]
    similarity.main([*options, "--sequences", "2", "--offsets", "0", "9"])
    token_scores.main([*options, "--setting", "interpolate"])
    swap.main([*options, "--beam", "1", "--max-len-a", "0", "--max-len-b", "5"])
    tokens = base.read(tmp_path / "out" / "token-scores.json").result["all"]["tokens"]
    assert tokens == sum(len(line.split()) for line in JOINED)
    swapped = base.read(tmp_path / "out" / "swap.json").result
    assert swapped["references"] == [line.split(f" {SEPARATOR} ")[0] for line in JOINED]
    assert base.read(tmp_path / "out" / "similarity.json").result["models"].keys() == {
        "ape",
        "shape",
    }
