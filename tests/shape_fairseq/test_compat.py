import logging
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from fairseq.modules import SinusoidalPositionalEmbedding

from shape_fairseq.compat import (
    FAIRSEQ_VERSION,
    FAST_PATH_COPIES,
    LOADS_CHECKPOINTS_SAFELY,
    OptionError,
    sinusoidal_table,
)


def test_an_option_error_is_a_line_for_the_shell_and_a_value_error_for_python():
    error = OptionError("so and so")
    assert isinstance(error, SystemExit) and isinstance(error, ValueError)
    assert error.code == "shape_fairseq: error: so and so"


def test_the_table_grows_only_when_it_must():
    embedding = SinusoidalPositionalEmbedding(8, 1, 10)
    before = embedding.weights.clone()
    assert sinusoidal_table(embedding, 5).equal(before)
    grown = sinusoidal_table(embedding, 50)
    assert grown.shape == (50, 8)
    assert grown[:10].equal(before)
    assert embedding.weights is grown


@pytest.mark.parametrize("arch", ["transformer_tiny", "transformer_shape_tiny"])
def test_all_trainable_weights_get_gradients(build, batch, arch):
    """torch's DDP waits for every one of them; fairseq 0.12.2's copies must not be among them."""
    model = build(arch).train()
    tokens = batch([4, 6])
    model(tokens, None, tokens)[0].sum().backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    copies = [n for n in model.state_dict() if n.split(".")[-1] in FAST_PATH_COPIES]
    assert bool(copies) == (FAIRSEQ_VERSION == "0.12.2")


@pytest.mark.parametrize("arch", ["transformer_tiny", "transformer_shape_tiny"])
def test_a_loaded_model_evaluates_batches_with_padding(build, batch, arch):
    """In fairseq 0.12.2 the fast path, taken after loading, raises an error with torch 2."""
    model = build(arch)
    model.load_state_dict(model.state_dict())
    with torch.no_grad():
        states = model.eval().encoder(batch([3, 7], left_pad=True), None)["encoder_out"][0]
    assert states.isfinite().all()


def test_sequences_that_fairseq_drops_are_reported(caplog):
    indices, sizes = numpy.arange(20), numpy.full(20, 5)
    with caplog.at_level(logging.WARNING):
        kept = data_utils.batch_by_size(
            indices, None, sizes, max_sentences=16, required_batch_size_multiple=8
        )
        dropped = 20 - sum(map(len, kept))
        warnings = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
        assert len(warnings) == bool(dropped)
        if dropped:
            assert f"left out {dropped} of 20 sequences" in warnings[0]
        caplog.clear()
        whole = data_utils.batch_by_size(indices, None, sizes, max_sentences=16)
    assert sum(map(len, whole)) == 20
    assert not [r for r in caplog.records if "left out" in r.getMessage()]


@pytest.mark.skipif(torch.cuda.is_available(), reason="concerns machines without a GPU")
def test_torchrun_starts_ranks_without_a_gpu(monkeypatch):
    for name, value in {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "3", "RANK": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    cfg = SimpleNamespace(
        distributed_init_method=None,
        distributed_world_size=3,
        tpu=False,
        pipeline_model_parallel=False,
    )
    distributed_utils.infer_init_method(cfg)
    assert (cfg.distributed_rank, cfg.distributed_world_size, cfg.device_id) == (2, 3, 0)
    assert cfg.distributed_no_spawn


@pytest.mark.skipif(
    not LOADS_CHECKPOINTS_SAFELY, reason="torch before 2.6 runs the code of a checkpoint"
)
def test_an_unknown_class_is_named_in_one_line(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": {}, "thing": logging.Formatter()}, path)
    with pytest.raises(ValueError, match=r"logging\.Formatter.*nothing of it was run") as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "\n" not in error.value.code


def test_numpy_scalars_in_a_checkpoint_are_loaded(tmp_path):
    """fairseq's meters put them there."""
    path = tmp_path / "checkpoint.pt"
    numbers = {"a": numpy.float64(1.5), "b": numpy.int64(3), "c": numpy.float32(2.5)}
    torch.save({"cfg": None, "model": {}, "extra_state": numbers}, path)
    assert torch.load(path)["extra_state"] == numbers


def test_the_log_file_of_many_epochs_is_opened_once_and_has_each_line_once(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_bar.logger, "handlers", [])
    progress_bar.logger.setLevel(logging.INFO)
    log = tmp_path / "train.log"
    for epoch in (1, 2, 3):
        bar = progress_bar.progress_bar([], log_format="simple", log_file=str(log), epoch=epoch)
        bar.print({"ppl": 7.0}, tag="valid")
    progress_bar.logger.setLevel(logging.NOTSET)
    assert log.read_text().splitlines() == [f"epoch {n:03d} | ppl 7" for n in (1, 2, 3)]
    (opened,) = progress_bar.logger.handlers
    opened.close()
