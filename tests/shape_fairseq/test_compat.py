"""Each patch has a check that holds with it and fails without it."""

import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics, progress_bar
from fairseq.models import distributed_fairseq_model
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from shape_fairseq import compat
from shape_fairseq.compat import APPLIED, FAST_PATH_COPIES, OFFICIAL, PATCHES, sinusoidal_table
from shape_fairseq.errors import OptionError

CHECKS = {}


def check(patch: str):
    """Register a function as the check of a patch."""
    return lambda function: CHECKS.setdefault(patch, function)


@pytest.fixture
def tools(build, batch, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    return SimpleNamespace(
        build=build, batch=batch, folder=tmp_path, monkeypatch=monkeypatch, log=caplog
    )


@check("no fast path")
def loaded_models_evaluate_batches_with_padding(tools):
    for arch in ("transformer_tiny", "transformer_shape_tiny"):
        model = tools.build(arch)
        model.load_state_dict(model.state_dict())
        with torch.no_grad():
            tokens = tools.batch([3, 7], left_pad=True)
            states = model.eval().encoder(tokens, None)["encoder_out"][0]
        assert states.isfinite().all()


@check("frozen copies")
def all_trainable_weights_get_gradients(tools):
    model = tools.build("transformer_shape_tiny").train()
    tokens = tools.batch([4, 6])
    model(tokens, None, tokens)[0].sum().backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert [n for n in model.state_dict() if n.split(".")[-1] in FAST_PATH_COPIES]


@check("literals instead of eval")
def an_option_is_no_program(tools):
    marker = tools.folder / "it-ran"
    tools.monkeypatch.delitem(sys.modules, "fairseq.data.codedataset", raising=False)
    from fairseq.data import codedataset  # imported after the patches

    for evaluate in (utils.eval_str_list, utils.eval_str_dict, utils.eval_bool, codedataset.eval):
        with pytest.raises(ValueError, match="nothing of it was run"):
            evaluate(f"__import__('os').mkdir({str(marker)!r})")
    assert not marker.exists()
    assert utils.eval_str_list("[1, 2] * 2", int) == [1, 2, 1, 2]


@check("allow-list")
def numpy_scalars_in_a_checkpoint_are_loaded(tools):
    """fairseq's meters put them there."""
    path = tools.folder / "checkpoint.pt"
    numbers = {"a": numpy.float64(1.5), "b": numpy.int64(3), "c": numpy.float32(2.5)}
    torch.save({"cfg": None, "model": {}, "extra_state": numbers}, path)
    assert torch.load(path)["extra_state"] == numbers


@check("checked checkpoints")
def an_unknown_class_is_named_in_one_line(tools):
    path = tools.folder / "checkpoint.pt"
    torch.save({"model": {}, "thing": logging.Formatter()}, path)
    with pytest.raises(ValueError, match=r"logging\.Formatter.*nothing of it was run") as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "\n" not in str(error.value)


@check("told data errors")
def a_sentence_that_is_too_long_is_told_in_one_line(tools):
    sentence = torch.arange(4, 13)
    dataset = LanguagePairDataset([sentence], [9], Dictionary())
    with pytest.raises(OptionError, match=r"max_positions=\(7, 7\)") as error:
        FairseqTask(None).filter_indices_by_size(numpy.array([0]), dataset, (7, 7))
    assert "\n" not in str(error.value)


@check("atomic checkpoints")
def a_failed_copy_leaves_the_last_checkpoint_as_it_was(tools):
    source, target = tools.folder / "source", tools.folder / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")
    tools.monkeypatch.setattr("shutil.copyfile", _copy_half)
    with pytest.raises((ValueError, OSError)):
        PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    assert sorted(os.listdir(tools.folder)) == ["checkpoint_last.pt", "source"]


def _copy_half(source, target):
    """What a full disk does to shutil.copyfile."""
    with open(source, "rb") as read, open(target, "wb") as written:
        written.write(read.read()[:1500])
    raise OSError(28, "No space left on device")


@check("whole checkpoint")
def a_broken_last_checkpoint_is_replaced(tools):
    state = {
        "model": {"w": torch.ones(2)},
        "optimizer_history": [{"num_updates": 0}],
        "last_optimizer_state": {},
    }
    for updates in (9, 10, 11):
        state["optimizer_history"][0]["num_updates"] = updates
        torch.save(state, tools.folder / f"checkpoint_1_{updates}.pt")
    last, newest = tools.folder / "checkpoint_last.pt", tools.folder / "checkpoint_1_11.pt"
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1])
    last.write_bytes(whole[:100])
    trainer = SimpleNamespace(checkpoint_suffix="", data_parallel_rank=0, loaded=None)
    trainer.load_checkpoint = lambda path, *_, **__: setattr(trainer, "loaded", path)
    trainer.get_train_iterator = lambda **_: SimpleNamespace(epoch=1)
    trainer.lr_step = lambda epoch: None
    cfg = SimpleNamespace(
        save_dir=str(tools.folder), restore_file="checkpoint_last.pt", finetune_from_model=None,
        optimizer_overrides="{}", reset_optimizer=False, reset_lr_scheduler=False,
        reset_meters=False, reset_dataloader=False, continue_once=None,
    )  # fmt: skip
    checkpoint_utils.load_checkpoint(cfg, trainer)
    assert trainer.loaded == str(last)
    assert torch.load(last)["optimizer_history"] == [{"num_updates": 10}]
    assert "going on from checkpoint_1_10.pt" in tools.log.text


@check("checkpoint on all ranks")
def every_rank_reads_the_checkpoint_itself(tools):
    """A training of two ranks is resumed in tests/end_to_end/test_representations.py."""
    options = SimpleNamespace(load_checkpoint_on_all_dp_ranks=False)
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(checkpoint=options),
        data_parallel_world_size=2,
        _previous_training_time=0,
    )
    Trainer.load_checkpoint(trainer, str(tools.folder / "none.pt"))
    assert options.load_checkpoint_on_all_dp_ranks


@check("time of its own")
def only_a_resumed_training_keeps_the_time_that_it_had(tools):
    """A model is fine-tuned in tests/recipes/test_experiment.py."""
    options = SimpleNamespace(load_checkpoint_on_all_dp_ranks=False)
    for reset_meters, expected in ((False, 60.0), (True, 0)):
        trainer = SimpleNamespace(
            cfg=SimpleNamespace(checkpoint=options),
            data_parallel_world_size=1,
            _previous_training_time=torch.tensor(60.0),  # as several ranks save it
        )
        none = str(tools.folder / "none.pt")
        metrics.log_start_time("wall", round=0)  # as a trainer does
        clock = metrics.get_meter("default", "wall")
        clock.load_state_dict(clock.state_dict())  # as a resumed training does
        Trainer.load_checkpoint(trainer, none, reset_meters=reset_meters)
        assert clock.smoothed_value == pytest.approx(expected, abs=30)  # a slow machine's clock
        assert trainer._previous_training_time == expected
        assert isinstance(clock.elapsed_time, float)  # the log rounds it


@check("numbered checkpoints")
def the_end_of_an_epoch_has_a_numbered_checkpoint(tools):
    """A real training is in tests/end_to_end/test_saving.py."""
    saved = []
    trainer = SimpleNamespace(
        data_parallel_rank=0,
        should_save_checkpoint_on_current_rank=True,
        checkpoint_suffix="",
        task=None,
        consolidate_optimizer=lambda: None,
        get_num_updates=lambda: 72,
        save_checkpoint=lambda path, state: saved.append((Path(path).name, state)),
    )
    epoch = SimpleNamespace(epoch=3, end_of_epoch=lambda: True, state_dict=lambda: {"epoch": 4})
    options = CheckpointConfig(
        save_dir=str(tools.folder),
        no_epoch_checkpoints=True,
        no_last_checkpoints=True,
        save_interval_updates=24,
    )
    checkpoint_utils.save_checkpoint(options, trainer, epoch, None)
    assert [name for name, _ in saved] == ["checkpoint_3_72.pt"]
    assert saved[0][1]["train_iterator"] == {"epoch": 4}


@check("reported drops")
def sequences_that_fairseq_drops_are_reported(tools):
    indices, sizes = numpy.arange(20), numpy.full(20, 5)
    data_utils.batch_by_size(indices, None, sizes, max_sentences=16, required_batch_size_multiple=8)
    assert "left out 4 of 20 sequences" in tools.log.text
    tools.log.clear()
    whole = data_utils.batch_by_size(indices, None, sizes, max_sentences=16)
    assert sum(map(len, whole)) == 20
    assert "left out" not in tools.log.text


@check("same batches")
def a_resumed_epoch_has_the_batches_of_the_first(tools):
    from fairseq.data import FairseqDataset

    class Words(FairseqDataset):
        """Sentences whose order depends on the epoch, as fairseq's shuffled ones do."""

        sizes = numpy.arange(1, 31)

        def __getitem__(self, index):
            return index

        def __len__(self):
            return 30

        def num_tokens(self, index):
            return int(self.sizes[index])

        def ordered_indices(self):
            return numpy.random.permutation(30)

    batches = []
    for epoch in (1, 3):
        task = FairseqTask(None)
        iterator = task.get_batch_iterator(Words(), max_tokens=40, seed=5, epoch=epoch)
        batches.append([list(map(int, batch)) for batch in iterator.frozen_batches])
        assert iterator.epoch == epoch
    assert batches[0] == batches[1]


@check("one log file")
def the_log_file_of_many_epochs_has_each_line_once(tools):
    tools.monkeypatch.setattr(progress_bar.logger, "handlers", [])
    tools.monkeypatch.setattr(progress_bar.logger, "level", logging.INFO)
    progress_bar.logger.manager._clear_cache()
    log = tools.folder / "train.log"
    for epoch in (1, 2, 3):
        bar = progress_bar.progress_bar([], log_format="simple", log_file=str(log), epoch=epoch)
        bar.print({"ppl": 7.0}, tag="valid")
    assert log.read_text().splitlines() == [f"epoch {n:03d} | ppl 7" for n in (1, 2, 3)]
    for handler in progress_bar.logger.handlers:
        handler.close()


@check("torchrun without GPU")
def torchrun_starts_ranks_without_a_gpu(tools):
    if torch.cuda.is_available():
        pytest.skip("concerns machines without a GPU")
    for name, value in {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "3", "RANK": "2",
    }.items():  # fmt: skip
        tools.monkeypatch.setenv(name, value)
    cfg = SimpleNamespace(
        distributed_init_method=None,
        distributed_world_size=3,
        tpu=False,
        pipeline_model_parallel=False,
    )
    distributed_utils.infer_init_method(cfg)
    assert (cfg.distributed_rank, cfg.distributed_world_size, cfg.device_id) == (2, 3, 0)
    assert cfg.distributed_no_spawn


@check("DDP without GPU")
def ddp_takes_a_module_on_the_cpu(tools):
    store = torch.distributed.FileStore(str(tools.folder / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        ddp = distributed_fairseq_model.DistributedDataParallel
        ddp(torch.nn.Linear(2, 2), device_ids=[0], output_device=0)
    finally:
        torch.distributed.destroy_process_group()


needed = [patch for patch in PATCHES if patch.needed]


@pytest.mark.parametrize("patch", needed, ids=lambda patch: patch.name)
def test_patch_holds(patch, tools):
    CHECKS[patch.name](tools)


@pytest.mark.parametrize("patch", needed, ids=lambda patch: patch.name)
def test_without_the_patch_its_check_fails(patch, tools):
    if patch.name == "torchrun without GPU" and torch.cuda.is_available():
        pytest.skip("concerns machines without a GPU")
    with pytest.MonkeyPatch.context() as undo:
        for owner, name, original in APPLIED[patch.name]:
            if original is compat.MISSING:
                undo.delattr(owner, name)
            else:
                undo.setattr(owner, name, original)
        if patch.name == "allow-list":  # a list in torch itself
            torch.serialization.clear_safe_globals()
        try:
            with pytest.raises((Exception, pytest.fail.Exception)):
                CHECKS[patch.name](tools)
        finally:
            compat.allow_list()


def test_every_patch_is_explained_and_checked():
    assert {patch.name for patch in PATCHES} == CHECKS.keys()
    assert set(APPLIED) == {patch.name for patch in needed}
    for patch in PATCHES:
        assert patch.version and patch.reason and "\n" not in patch.reason


def test_loaded_again_under_another_name_nothing_is_patched_again():
    def in_place():
        return [
            (owner, name, vars(owner).get(name))
            for replacements in APPLIED.values()
            for owner, name, _ in replacements
        ]

    before = in_place()
    spec = importlib.util.spec_from_file_location(
        "second_copy.compat",
        compat.__file__,
    )
    package = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location(
            "second_copy",
            os.path.join(os.path.dirname(compat.__file__), "__init__.py"),
            submodule_search_locations=[os.path.dirname(compat.__file__)],
        )
    )
    sys.modules["second_copy"] = package
    try:
        second = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(second)
    finally:
        for name in [name for name in sys.modules if name.startswith("second_copy")]:
            del sys.modules[name]
    assert second.APPLIED is APPLIED
    assert in_place() == before


def test_the_table_grows_only_when_it_must():
    embedding = SinusoidalPositionalEmbedding(8, 1, 10)
    before = embedding.weights.clone()
    assert sinusoidal_table(embedding, 5).equal(before)
    grown = sinusoidal_table(embedding, 50)
    assert grown.shape == (50, 8)
    assert grown[:10].equal(before)
    assert embedding.weights is grown


def test_only_the_official_fairseq_keeps_copies_of_weights(build):
    names = {name.split(".")[-1] for name in build("transformer_tiny").state_dict()}
    assert bool(names & set(FAST_PATH_COPIES)) == OFFICIAL
