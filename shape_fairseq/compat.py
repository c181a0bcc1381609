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
import logging
import os
import pickle

import numpy
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from fairseq.models import distributed_fairseq_model
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import FairseqTask
from torch import nn

FAIRSEQ_VERSION = fairseq.__version__
logger = logging.getLogger(__name__)


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


# After loading a checkpoint fairseq 0.12.2 evaluates its encoder layers with torch's fused one. It
# goes around `self_attn`, so it would silently ignore relative positions; and torch 2 refuses every
# batch with padding that fairseq hands it. fairseq-fixed has no such path. A property of the class
# is what all layers see, fairseq's own `transformer` too.
TransformerEncoderLayerBase.can_use_fastpath = property(
    lambda layer: False, lambda layer, value: None
)

# For that path fairseq 0.12.2 keeps a second copy of each encoder layer's weights. Training never
# touches the copies, and loading a checkpoint overwrites them.
FAST_PATH_COPIES = tuple(
    f"{module}_{kind}"
    for module in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


def _freeze_copies(init):
    """Mark the copies as not to be trained: torch's DDP waits for the gradients of all others."""

    @functools.wraps(init)
    def init_and_freeze(layer, *args, **kwargs):
        init(layer, *args, **kwargs)
        for name in FAST_PATH_COPIES:
            getattr(layer, name).requires_grad_(False)

    return init_and_freeze


if FAIRSEQ_VERSION == "0.12.2":
    TransformerEncoderLayerBase.__init__ = _freeze_copies(TransformerEncoderLayerBase.__init__)


class EncoderLayerWithoutCopies(TransformerEncoderLayerBase):
    """fairseq's encoder layer without the copies of its weights for the fast path."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
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


def _tell_of_dropped_sequences(batch_by_size):
    """Warn when fairseq-fixed drops the last batch, test sentences included."""

    @functools.wraps(batch_by_size)
    def batch_and_count(indices, *args, **kwargs):
        batches = batch_by_size(indices, *args, **kwargs)
        dropped = len(indices) - sum(map(len, batches))
        if dropped:
            logger.warning(
                f"fairseq left out {dropped} of {len(indices)} sequences, the last batch; "
                "with --required-batch-size-multiple 1 it keeps them all"
            )
        return batches

    return batch_and_count


def _resume_with_the_same_batches(get_batch_iterator):
    """Group sentences after a resume as the run that was never stopped does.

    fairseq-fixed seeds the grouping with the epoch in which the iterator is made, and keeps it for
    all epochs to come: in a run from the start that is epoch 1, after a resume any other.
    """

    @functools.wraps(get_batch_iterator)
    def get_first_epochs_batches(task, dataset, *args, epoch=1, **kwargs):
        made_each_epoch = (
            kwargs.get("disable_iterator_cache")
            or kwargs.get("update_epoch_batch_itr")
            or not task.can_reuse_epoch_itr(dataset)
        )
        if epoch == 1 or made_each_epoch or dataset in task.dataset_to_epoch_iter:
            return get_batch_iterator(task, dataset, *args, epoch=epoch, **kwargs)
        iterator = get_batch_iterator(task, dataset, *args, epoch=1, **kwargs)
        dataset.set_epoch(epoch)
        iterator.epoch = epoch
        return iterator

    return get_first_epochs_batches


if FAIRSEQ_VERSION != "0.12.2":
    data_utils.batch_by_size = _tell_of_dropped_sequences(data_utils.batch_by_size)
    FairseqTask.get_batch_iterator = _resume_with_the_same_batches(FairseqTask.get_batch_iterator)


def _open_log_file_once(log: logging.Logger) -> None:
    """Keep fairseq from opening --log-file once more for every epoch and every validation.

    Each line would be written as often as the file is open, and after some hundred epochs a process
    may open no more files.
    """
    add_handler = log.addHandler

    def add_new_handler(handler: logging.Handler) -> None:
        path = getattr(handler, "baseFilename", None)
        if path and path in [getattr(known, "baseFilename", None) for known in log.handlers]:
            handler.close()
        else:
            add_handler(handler)

    log.addHandler = add_new_handler


_open_log_file_once(progress_bar.logger)


# Data parallelism on the CPU, for a look and for tests: fairseq divides by the number of GPUs to
# find the device of a rank that torchrun started, and hands that device to torch's own DDP.


def _torchrun_without_gpu(infer_from_torchrun):
    """Let torchrun start the ranks of a machine that has no GPU."""

    @functools.wraps(infer_from_torchrun)
    def infer(cfg):
        if torch.cuda.device_count():
            return infer_from_torchrun(cfg)
        cfg.distributed_init_method = "env://"
        cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
        cfg.distributed_rank = int(os.environ["RANK"])
        cfg.distributed_no_spawn = True
        cfg.device_id = 0

    return infer


class _DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """torch's DDP, which takes no device for a module on the CPU."""

    def __init__(self, module, device_ids=None, output_device=None, **kwargs):
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        super().__init__(module, device_ids, output_device, **kwargs)


distributed_utils._infer_torch_distributed_launch_init = _torchrun_without_gpu(
    distributed_utils._infer_torch_distributed_launch_init
)
distributed_fairseq_model.DistributedDataParallel = _DistributedDataParallel


def allocations(profiler: torch.profiler.profile) -> list[int]:
    """Bytes that a profiled CPU program took (or, negative, gave back), in their order."""
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    clock = "start_ns" if events and hasattr(events[0], "start_ns") else "start_us"
    return [event.nbytes() for event in sorted(events, key=lambda event: getattr(event, clock)())]
