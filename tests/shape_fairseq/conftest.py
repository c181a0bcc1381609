"""Small real models, built by fairseq from a vocabulary that the tests make."""

from argparse import ArgumentParser, Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import shape_fairseq  # noqa: F401 - registers the models


def vocabulary(size: int) -> Dictionary:
    dictionary = Dictionary()
    for index in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


@pytest.fixture
def build():
    """build("transformer_shape_tiny", "--max-shift", "5"): a model in evaluation mode."""

    def build_model(arch: str, *options: str, vocabulary_size: int = 40, seed: int = 1):
        torch.manual_seed(seed)
        parser = ArgumentParser(argument_default=None)
        ARCH_MODEL_REGISTRY[arch].add_args(parser)
        args = parser.parse_args(["--share-all-embeddings", *options])
        args = Namespace(**{k: v for k, v in vars(args).items() if v is not None})
        ARCH_CONFIG_REGISTRY[arch](args)
        words = vocabulary(vocabulary_size)
        task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, task).eval()

    return build_model


@pytest.fixture
def batch():
    """batch([3, 7], left_pad=True): token ids of sequences of these lengths, padded with 1."""

    def make_batch(lengths, left_pad=False, seed=0):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.full((len(lengths), max(lengths)), 1)
        for row, length in zip(tokens, lengths, strict=True):
            words = torch.randint(4, 40, (length,), generator=generator)
            row[-length if left_pad else 0 : None if left_pad else length] = words
        return tokens

    return make_batch
