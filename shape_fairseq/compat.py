"""All that depends on the versions of Python, torch and fairseq; the other files know none of it.

This file is imported first and explains what is missing, so it must parse on any Python 3.
"""

import sys

if sys.version_info < (3, 10):
    sys.exit("shape_fairseq needs Python 3.10 or newer, this is %d.%d" % sys.version_info[:2])

try:
    import fairseq
except ModuleNotFoundError as error:
    if error.name != "fairseq":
        raise
    sys.exit("shape_fairseq needs fairseq: run `make setup`, or `pip install shape-fairseq`")

import argparse
import functools
import pickle

import numpy
import torch
from fairseq import checkpoint_utils
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import nn


class OptionError(SystemExit, ValueError):
    """A wrong option: one line on the command line, a ValueError for Python callers."""

    def __init__(self, message: str):
        super().__init__(f"shape_fairseq: error: {message}")


def sinusoidal_table(embedding: nn.Module, rows: int) -> torch.Tensor:
    """The sinusoidal table of `embedding` with at least `rows` rows, on its device and dtype."""
    # fairseq-fixed: `weights` is a buffer. fairseq 0.12.2: it is a plain tensor that does not move
    # with the module, and the buffer `_float_tensor` tells where the module is.
    like = getattr(embedding, "_float_tensor", embedding.weights)
    if rows > embedding.weights.size(0):
        embedding.weights = embedding.get_embedding(
            rows, embedding.embedding_dim, embedding.padding_idx
        )
    embedding.weights = embedding.weights.to(like)
    return embedding.weights


# fairseq 0.12.2 keeps a second copy of each encoder layer's weights for torch's fused encoder
# layer. Training never touches the copies, and loading a checkpoint overwrites them.
FAST_PATH_COPIES = tuple(
    f"{module}_{kind}"
    for module in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


class EncoderLayerWithoutFastPath(TransformerEncoderLayerBase):
    """fairseq's encoder layer, always computed through its own `self_attn`.

    After loading a checkpoint fairseq 0.12.2 evaluates `torch._transformer_encoder_layer_fwd`
    instead, which knows nothing of another attention. fairseq-fixed has no such path.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.can_use_fastpath = False
        for name in FAST_PATH_COPIES:
            if name in self._parameters:
                delattr(self, name)

    def _load_from_state_dict(self, *args, **kwargs):
        nn.Module._load_from_state_dict(self, *args, **kwargs)


def _allow_fairseq_checkpoints() -> None:
    """Let torch's restricted unpickler read what fairseq writes, and nothing else."""
    multiarray = getattr(numpy, "_core", numpy.core).multiarray
    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            multiarray.scalar,
            numpy.dtype,
            *{type(numpy.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")},
        ]
    )


def _explain_refusal(load):
    """Turn torch's refusal of a checkpoint into one line."""

    @functools.wraps(load)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        try:
            return load(path, *args, **kwargs)
        except pickle.UnpicklingError as error:
            culprit = str(error).partition("GLOBAL ")[2].split(" ")[0]
            what = f"it wants to run {culprit}" if culprit else str(error).splitlines()[0]
            raise OptionError(
                f"{path} was not loaded: it holds more than weights and settings ({what}); "
                "nothing of it was run"
            ) from None

    return load_checkpoint_to_cpu


# From 2.6 on torch.load runs no code of a checkpoint unless it is asked to. Before, it does.
LOADS_CHECKPOINTS_SAFELY = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

if LOADS_CHECKPOINTS_SAFELY:
    _allow_fairseq_checkpoints()
    checkpoint_utils.load_checkpoint_to_cpu = _explain_refusal(
        checkpoint_utils.load_checkpoint_to_cpu
    )

FAIRSEQ_VERSION = fairseq.__version__
