"""All that depends on the versions of Python, torch and fairseq; the other files know none of it.

The table PATCHES, at the end, says what is changed in fairseq, for which version and why.
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

import torch

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    sys.exit(
        "shape_fairseq needs torch 2.6 or newer, this is %s: older ones run the code of a"
        " malicious checkpoint" % torch.__version__
    )

import dataclasses
import functools
import importlib.machinery
import io
import logging
import os
import shutil
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics, progress_bar
from fairseq.models import distributed_fairseq_model
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from torch import nn

from . import checkpoints
from .errors import OptionError, UserError, one_line

FAIRSEQ_VERSION = fairseq.__version__
OFFICIAL = FAIRSEQ_VERSION == "0.12.2"  # else it is fairseq-fixed, for Python 3.11 and newer
logger = logging.getLogger(__name__)

# For its fast path fairseq 0.12.2 keeps a second copy of each encoder layer's weights. Training
# never touches the copies, and loading a checkpoint overwrites them.
FAST_PATH_COPIES = tuple(
    f"{module}_{kind}"
    for module in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


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


class EncoderLayerWithoutCopies(TransformerEncoderLayerBase):
    """fairseq's encoder layer without the copies of its weights for the fast path."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in FAST_PATH_COPIES:
            if name in self._parameters:
                delattr(self, name)

    def _load_from_state_dict(self, *args, **kwargs):
        nn.Module._load_from_state_dict(self, *args, **kwargs)


# What a patch puts in place: an object, the name of its attribute, and what it gets instead.
Replacement = tuple[Any, str, Any]


@dataclasses.dataclass(frozen=True)
class Patch:
    """One change to fairseq: its name, the versions it is for, why, and what it replaces."""

    name: str
    version: str
    reason: str
    replacements: Callable[[], list[Replacement]]
    needed: bool = True


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable], Callable]) -> Replacement:
    original = getattr(owner, name)
    return owner, name, functools.wraps(original)(wrapper(original))


def no_fast_path() -> list[Replacement]:
    # A property of the class is what all layers see, fairseq's own `transformer` too.
    never = property(lambda layer: False, lambda layer, value: None)
    return [(TransformerEncoderLayerBase, "can_use_fastpath", never)]


def frozen_copies() -> list[Replacement]:
    def wrapper(init):
        def init_and_freeze(layer, *args, **kwargs):
            init(layer, *args, **kwargs)
            for name in FAST_PATH_COPIES:
                getattr(layer, name).requires_grad_(False)

        return init_and_freeze

    return [_wrap(TransformerEncoderLayerBase, "__init__", wrapper)]


def literals_instead_of_eval() -> list[Replacement]:
    """Give every module of fairseq, those imported later too, an `eval` that runs nothing."""

    class Loader(importlib.machinery.SourceFileLoader):
        def exec_module(self, module):
            module.eval = checkpoints.literal
            super().exec_module(module)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if not name.startswith("fairseq."):
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = Loader(spec.loader.name, spec.loader.path)
            return spec

    modules = {  # some have two names
        id(module): module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "fairseq" and module is not None
    }
    return [
        *((module, "eval", checkpoints.literal) for module in modules.values()),
        (sys, "meta_path", [Finder, *sys.meta_path]),
    ]


def allow_list() -> list[Replacement]:
    checkpoints.allow_fairseq_classes()
    return []


def checked_checkpoints() -> list[Replacement]:
    def load_to_cpu(load):
        def load_checkpoint_to_cpu(path, *args, **kwargs):
            local_path = PathManager.get_local_path(path)
            with refusals(path):
                checkpoints.check(local_path)
                return load(path, *args, **kwargs)

        return load_checkpoint_to_cpu

    def load_models(load):
        def load_model_ensemble_and_task(filenames, *args, **kwargs):
            with refusals(":".join(map(str, filenames))), checkpoints.no_larger_than(*filenames):
                models, config, task = load(filenames, *args, **kwargs)
                for model in models:
                    _try_a_word(model)
                return models, config, task

        return load_model_ensemble_and_task

    def make_criterion(build):
        def build_criterion(task, cfg, *args, **kwargs):  # fairseq-validate takes it from there
            with refusals("the criterion, of a checkpoint or of the options,"):
                criterion = build(task, cfg, *args, **kwargs)
                if criterion is None:
                    raise checkpoints.Refused("has no name")
                return criterion

        return build_criterion

    return [
        _wrap(checkpoint_utils, "load_checkpoint_to_cpu", load_to_cpu),
        _wrap(checkpoint_utils, "load_model_ensemble_and_task", load_models),
        _wrap(FairseqTask, "build_criterion", make_criterion),
    ]


def told_data_errors() -> list[Replacement]:
    def wrapper(original):
        def or_one_line(task, *args, **kwargs):
            with refusals("the data, with the options that the model has or was given,"):
                return original(task, *args, **kwargs)

        return or_one_line

    return [
        _wrap(TranslationTask, "load_dataset", wrapper),
        _wrap(FairseqTask, "filter_indices_by_size", wrapper),
    ]


def _try_a_word(model: nn.Module) -> None:
    """Let a Transformer read and write one word: an option of a wrong type fails here or never."""
    if type(model).forward is not TransformerModelBase.forward:
        return  # other families take other inputs
    word, training = torch.tensor([[model.encoder.dictionary.eos()]]), model.training
    with torch.no_grad():
        model.eval()(word, torch.tensor([1]), word)
    model.train(training)


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turn every error within into one line that names the checkpoint."""
    try:
        yield
    except UserError:
        raise  # it is one line already
    except checkpoints.Refused as error:
        raise OptionError(f"{path} {error}") from error
    except OptionError as error:
        if path in str(error):
            raise
        reason = str(error).removeprefix("shape_fairseq: error: ")
        raise OptionError(f"{path} was not loaded: {reason}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise OptionError(f"{path} was not loaded ({reason})") from error


def atomic_checkpoints() -> list[Replacement]:
    def copy(original):
        def copy_then_rename(source, target, overwrite=False):
            if not PathManager.supports_rename(target):
                return original(source, target, overwrite=overwrite)
            partial = f"{target}.tmp"
            with _full_disk_is_one_line(target, partial):
                shutil.copyfile(source, partial)
                with open(partial, "rb+") as file:
                    os.fsync(file.fileno())
                os.replace(partial, target)
            return target

        return copy_then_rename

    def save(original):
        def save_or_tell(state, filename, *args, **kwargs):
            with _full_disk_is_one_line(filename, f"{filename}.tmp"):
                return original(state, filename, *args, **kwargs)

        return save_or_tell

    def write(original):
        def write_then_sync(state, file):  # without its three attempts, pages of traceback each
            torch.save(state, file)
            file.flush()
            with suppress(io.UnsupportedOperation):  # what iopath writes in the background
                os.fsync(file.fileno())

        return write_then_sync

    owner, name, copying = _wrap(PathManager, "copy", copy)
    return [
        (owner, name, staticmethod(copying)),
        _wrap(checkpoint_utils, "torch_persistent_save", save),
        _wrap(checkpoint_utils, "_torch_persistent_save", write),
    ]


@contextmanager
def _full_disk_is_one_line(path: str, partial: str) -> Iterator[None]:
    """Turn an error of writing into one line, and remove what was written by then."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch tells of a full disk with a RuntimeError
        Path(partial).unlink(missing_ok=True)
        raise OptionError(
            f"{path} cannot be written ({one_line(error, 100)}): free some space and start the"
            " same training again; it goes on from the last whole checkpoint"
        ) from error


def whole_checkpoint() -> list[Replacement]:
    def wrapper(load_checkpoint):
        def load_whole_checkpoint(cfg, trainer, *args, **kwargs):
            last = Path(cfg.save_dir, "checkpoint_last.pt")
            default = cfg.restore_file == last.name and not trainer.checkpoint_suffix
            if default and trainer.data_parallel_rank == 0 and last.is_file():
                _replace_if_broken(last)
            with refusals(str(last) if default else cfg.restore_file):
                return load_checkpoint(cfg, trainer, *args, **kwargs)

        return load_whole_checkpoint

    return [_wrap(checkpoint_utils, "load_checkpoint", wrapper)]


def _replace_if_broken(last: Path) -> None:
    """Put the newest whole checkpoint in the place of the last one, if that is broken."""
    if checkpoints.is_whole(last):
        return
    newest = checkpoints.newest_whole(last.parent, but=last)
    if newest is None:
        return  # what is wrong with the last one is told when it is loaded
    PathManager.copy(str(newest), str(last), overwrite=True)
    logger.warning(
        f"{last} is broken, perhaps by a full disk or a crash:"
        f" going on from {newest.name}, the newest whole checkpoint"
    )


def checkpoint_on_all_ranks() -> list[Replacement]:
    def wrapper(load_checkpoint):
        def load_checkpoint_on_this_rank(trainer, *args, **kwargs):
            trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
            return load_checkpoint(trainer, *args, **kwargs)

        return load_checkpoint_on_this_rank

    return [_wrap(Trainer, "load_checkpoint", wrapper)]


def time_of_its_own() -> list[Replacement]:
    def wrapper(load_checkpoint):
        def load_checkpoint_with_its_time(trainer, *args, reset_meters=False, **kwargs):
            extra_state = load_checkpoint(trainer, *args, reset_meters=reset_meters, **kwargs)
            # --finetune-from-model resets the meters. Several ranks save their time as a tensor.
            before = 0.0 if reset_meters else float(trainer._previous_training_time)
            trainer._previous_training_time = before
            clock = metrics.get_meter("default", "wall")
            if clock is not None:
                clock.start()
                clock.start_time -= before
            return extra_state

        return load_checkpoint_with_its_time

    return [_wrap(Trainer, "load_checkpoint", wrapper)]


def numbered_checkpoints() -> list[Replacement]:
    def wrapper(save_checkpoint):
        def save_numbered(cfg, trainer, epoch_itr, val_loss):
            if cfg.no_epoch_checkpoints:
                epoch_itr = types.SimpleNamespace(
                    epoch=epoch_itr.epoch,
                    end_of_epoch=lambda: False,
                    state_dict=epoch_itr.state_dict,
                )
            return save_checkpoint(cfg, trainer, epoch_itr, val_loss)

        return save_numbered

    return [_wrap(checkpoint_utils, "save_checkpoint", wrapper)]


def reported_drops() -> list[Replacement]:
    def wrapper(batch_by_size):
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

    return [_wrap(data_utils, "batch_by_size", wrapper)]


def same_batches() -> list[Replacement]:
    # fairseq-fixed seeds the grouping with the epoch in which the iterator is made, and keeps it
    # for all epochs to come: in a run from the start that is epoch 1, after a resume any other.
    def wrapper(get_batch_iterator):
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

    return [_wrap(FairseqTask, "get_batch_iterator", wrapper)]


def one_log_file() -> list[Replacement]:
    log = progress_bar.logger

    def wrapper(add_handler):
        def add_new_handler(handler: logging.Handler) -> None:
            path = getattr(handler, "baseFilename", None)
            if path and path in [getattr(known, "baseFilename", None) for known in log.handlers]:
                handler.close()
            else:
                add_handler(handler)

        return add_new_handler

    return [_wrap(log, "addHandler", wrapper)]


def torchrun_without_gpu() -> list[Replacement]:
    def wrapper(infer_from_torchrun):
        def infer(cfg):
            if torch.cuda.device_count():
                return infer_from_torchrun(cfg)
            cfg.distributed_init_method = "env://"
            cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
            cfg.distributed_rank = int(os.environ["RANK"])
            cfg.distributed_no_spawn = True
            cfg.device_id = 0

        return infer

    return [_wrap(distributed_utils, "_infer_torch_distributed_launch_init", wrapper)]


def ddp_without_gpu() -> list[Replacement]:
    class DistributedDataParallel(nn.parallel.DistributedDataParallel):
        """torch's DDP, which takes no device for a module on the CPU."""

        def __init__(self, module, device_ids=None, output_device=None, **kwargs):
            if all(parameter.device.type == "cpu" for parameter in module.parameters()):
                device_ids = output_device = None
            super().__init__(module, device_ids, output_device, **kwargs)

    return [(distributed_fairseq_model, "DistributedDataParallel", DistributedDataParallel)]


# fmt: off
PATCHES = (
    # name, version, reason, what it replaces, whether this version needs it
    Patch("no fast path", "fairseq 0.12.2",
          "its fused encoder layer ignores relative positions, and with torch 2 fails on padding",
          no_fast_path, OFFICIAL),
    Patch("frozen copies", "fairseq 0.12.2",
          "torch's DDP waits for gradients of the fast path's copies, which get none",
          frozen_copies, OFFICIAL),
    Patch("literals instead of eval", "all of fairseq",
          "options of a checkpoint reach eval()",
          literals_instead_of_eval),
    Patch("allow-list", "torch 2.6 and newer",
          "torch.load refuses the classes that fairseq's checkpoints hold",
          allow_list),
    Patch("checked checkpoints", "all of fairseq",
          "a bad checkpoint ends in a traceback, runs out of memory or reaches a shell",
          checked_checkpoints),
    Patch("told data errors", "all of fairseq",
          "a sentence that is too long for the model ends in a traceback, as other bad data does",
          told_data_errors),
    Patch("atomic checkpoints", "all of fairseq",
          "checkpoint_last.pt is copied in place: a full disk or a kill leaves half a file",
          atomic_checkpoints),
    Patch("whole checkpoint", "all of fairseq",
          "with a broken checkpoint_last.pt every restart fails, though whole ones lie beside it",
          whole_checkpoint),
    Patch("checkpoint on all ranks", "torch 2.6 and newer",
          "rank 0 hands its checkpoint on to the others as objects that torch.load refuses",
          checkpoint_on_all_ranks),
    Patch("time of its own", "all of fairseq",
          "a fine-tuned model counts the time of its model's training; a resumed one logs no time",
          time_of_its_own),
    Patch("numbered checkpoints", "all of fairseq",
          "with --no-epoch-checkpoints the end of an epoch has none: an average lacks it",
          numbered_checkpoints),
    Patch("reported drops", "fairseq-fixed",
          "the last batch, of test sentences too, is dropped without a word",
          reported_drops, not OFFICIAL),
    Patch("same batches", "fairseq-fixed",
          "a resumed training groups sentences differently from one that was never stopped",
          same_batches, not OFFICIAL),
    Patch("one log file", "all of fairseq",
          "--log-file is opened for every epoch: lines are repeated, files run out",
          one_log_file),
    Patch("torchrun without GPU", "all of fairseq",
          "it divides by the number of GPUs",
          torchrun_without_gpu),
    Patch("DDP without GPU", "all of fairseq",
          "it hands a device to torch's DDP, which takes none on a CPU",
          ddp_without_gpu),
)
# fmt: on

# The patches that are in place, each with what it replaced. They are noted in fairseq itself, as
# this file may be loaded twice: from a --user-dir and from where it is installed.
MISSING = object()
APPLIED: dict[str, list[Replacement]] = fairseq.__dict__.setdefault("_shape_fairseq_patches", {})


def apply_patches() -> None:
    """Put all patches in place that this version needs and that are not there yet."""
    for patch in PATCHES:
        if patch.needed and patch.name not in APPLIED:
            APPLIED[patch.name] = []
            for owner, name, replacement in patch.replacements():
                original = vars(owner).get(name, MISSING)
                APPLIED[patch.name].append((owner, name, original))
                setattr(owner, name, replacement)


apply_patches()
