"""Small real models, built by fairseq from a vocabulary that the tests make.

torch and fairseq are imported where they are used: tests of modules without them start at once.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from shape_fairseq.text import bpe

if TYPE_CHECKING:
    from fairseq.data import Dictionary


def vocabulary(size: int) -> Dictionary:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for index in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


def parse_options(arch: str, *options: str) -> Namespace:
    """All options of an architecture, as fairseq-train would complete them."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    import shape_fairseq.models  # noqa: F401 - registers the models

    parser = ArgumentParser(argument_default=None)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    args = parser.parse_args(["--share-all-embeddings", *options])
    args = Namespace(**{k: v for k, v in vars(args).items() if v is not None})
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


@pytest.fixture
def build():
    """build("transformer_shape_tiny", "--max-shift", "5"): a model in evaluation mode."""
    import torch
    from fairseq.models import ARCH_MODEL_REGISTRY

    def build_model(arch: str, *options: str, vocabulary_size: int = 40, seed: int = 1):
        words = vocabulary(vocabulary_size)
        task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
        args = parse_options(arch, *options)
        torch.manual_seed(seed)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, task).eval()

    return build_model


@pytest.fixture
def data_folder(tmp_path) -> Path:
    """The dictionary and the BPE codes of the models' vocabulary, where data_prep puts them."""
    folder = tmp_path / "data"
    words = vocabulary(40)
    folder.mkdir()
    words.save(str(folder / "dict.txt"))
    text = folder / "words.txt"
    text.write_text(f"{' '.join(words.symbols[words.nspecial :])}\n" * 3)
    bpe.learn([text], 100, folder / "bpe" / "codes", workers=1)
    return folder


@pytest.fixture
def save_checkpoint(build, tmp_path, data_folder):
    """save_checkpoint("transformer_rpe_tiny"): the path of a checkpoint with random weights."""
    import torch

    def save(arch: str, *options: str) -> Path:
        path = tmp_path / f"{arch}.pt"
        args = parse_options(arch, *options)
        args.arch = args._name = arch
        args.data, args.source_lang, args.target_lang = str(data_folder), "en", "de"
        config = {"model": args, "common": {"user_dir": "shape_fairseq"}, "task": {}}
        state = {
            "args": None,
            "cfg": config,
            "model": build(arch, *options).state_dict(),
            "optimizer_history": [{"num_updates": 3}],
            "extra_state": {},
        }
        torch.save(state, path)
        return path

    return save


@pytest.fixture
def export_model(save_checkpoint, tmp_path):
    """export_model("transformer_rpe_tiny"): the folder of a CTranslate2 model, random weights."""

    def export_one(arch: str, *options: str, **export_options: str) -> Path:
        from shape_fairseq.production import export

        output = tmp_path / "exported"
        more = [text for name, value in export_options.items() for text in (f"--{name}", value)]
        checkpoint = save_checkpoint(arch, *options)
        export.main([str(checkpoint), "--to", "ctranslate2", str(output), *more])
        return output

    return export_one


@pytest.fixture
def batch():
    """batch([3, 7], left_pad=True): token ids of sequences of these lengths, padded with 1."""
    import torch

    def make_batch(lengths, left_pad=False, seed=0):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.full((len(lengths), max(lengths)), 1)
        for row, length in zip(tokens, lengths, strict=True):
            words = torch.randint(4, 40, (length,), generator=generator)
            row[-length if left_pad else 0 : None if left_pad else length] = words
        return tokens

    return make_batch
