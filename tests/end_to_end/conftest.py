"""A toy corpus and short trainings on it, made once for all end-to-end tests."""

import random
from pathlib import Path

import pytest

from tests.end_to_end.commands import run, train


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """A binarized toy translation task: write the words of a sentence in reverse."""
    folder = tmp_path_factory.mktemp("data")
    generator = random.Random(1)
    words = [f"w{index}" for index in range(30)]
    for subset, size in (("train", 300), ("valid", 20), ("test", 20)):
        sources = [generator.choices(words, k=generator.randint(2, 12)) for _ in range(size)]
        for language, lines in (("en", sources), ("de", [line[::-1] for line in sources])):
            text = "".join(" ".join(line) + "\n" for line in lines)
            (folder / f"{subset}.{language}").write_text(text)
    prefixes = (f"--{subset}pref={folder / subset}" for subset in ("train", "valid", "test"))
    binarized = folder / "bin"
    run(
        "fairseq-preprocess",
        *("--source-lang", "en", "--target-lang", "de", "--joined-dictionary"),
        *(*prefixes, "--destdir", binarized),
    )
    return binarized


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """trained("transformer_rpe_tiny"): the checkpoint of a short training, made once."""
    made: dict[str, Path] = {}

    def checkpoint(arch: str) -> Path:
        if arch not in made:
            save = tmp_path_factory.mktemp(arch)
            more = ["--max-shift", "5"] if "shape" in arch else []
            train(data, save, arch, 60, *more)
            made[arch] = save / "checkpoint_last.pt"
        return made[arch]

    return checkpoint
