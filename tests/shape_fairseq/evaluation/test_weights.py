"""Weights are averaged and counted once each, however fairseq saved them."""

import pytest
import torch
from fairseq.utils import move_to_cpu

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import weights
from shape_fairseq.evaluation.weights import average, read_history


@pytest.fixture
def save(tmp_path):
    """save(90, bias=[1.0, 2.0]): the path of a checkpoint of 90 updates with such weights."""

    def save_checkpoint(updates: int, seconds=None, **model):
        path = tmp_path / f"checkpoint_1_{updates}.pt"
        tensors = {
            name: value if isinstance(value, torch.Tensor) else torch.tensor(value)
            for name, value in model.items()
        }
        history = [{"num_updates": updates}]
        extra = {"previous_training_time": updates / 2 if seconds is None else seconds}
        state = {"model": tensors, "optimizer_history": history, "extra_state": extra}
        torch.save(state, path)
        return path

    return save_checkpoint


@pytest.mark.parametrize(
    "arch", ["transformer_tiny", "transformer_rpe_tiny", "transformer_t5_bias_tiny"]
)
def test_parameters_of_a_real_model_are_counted(build, arch):
    model = build(arch)
    learned = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert weights.count_parameters(model.state_dict()) == learned
    # What fairseq saves of a model in half precision, or on a GPU, no longer shares its memory.
    assert weights.count_parameters(move_to_cpu(model.half().state_dict())) == learned


def test_one_checkpoint_is_its_own_average(save):
    state = average({9: save(9, bias=[1.5, -2.0])})
    assert state["model"]["bias"].tolist() == [1.5, -2.0]
    assert state["extra_state"]["averaged_updates"] == [9]


def test_half_precision_is_averaged_without_rounding(save):
    paths = {
        updates: save(updates, bias=torch.tensor([value], dtype=torch.float16))
        for updates, value in ((1, 2048.0), (2, 2050.0), (3, 2048.0), (4, 2050.0))
    }
    mean = average(paths)["model"]["bias"]
    assert mean.dtype == torch.float32 and mean.item() == 2049


def test_shared_embeddings_stay_shared_and_are_averaged_once(save):
    names = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")
    shared = torch.ones(3, 2)
    separate = {name: torch.full((3, 2), 3.0) for name in names}
    for order in ((shared, separate), (separate, shared)):
        paths = {}
        for updates, part in enumerate(order):
            model = part if isinstance(part, dict) else dict.fromkeys(names, part)
            paths[updates] = save(updates, **model)
        model = average(paths)["model"]
        assert all(torch.equal(model[name], torch.full((3, 2), 2.0)) for name in names)
        assert len({model[name].data_ptr() for name in names}) == 1


def test_equal_weights_that_are_no_embeddings_are_counted_each():
    zeros = {f"encoder.layers.{n}.fc1.bias": torch.zeros(4) for n in range(3)}
    assert weights.count_parameters(zeros) == 12
    nan = {"encoder.embed_tokens.weight": torch.full((3, 2), float("nan"))}
    assert weights.count_parameters(nan) == 6
    assert weights.count_parameters({}) == 0


def test_checkpoints_of_different_models_are_refused(save):
    first = save(1, bias=[1.0, 2.0])
    for other in ({"bias": [1.0]}, {"other": [1.0, 2.0]}):
        with pytest.raises(UserError, match=r"checkpoint_1_2\.pt holds another model"):
            average({1: first, 2: save(2, **other)})


def test_the_history_of_an_average_is_read_and_other_files_are_refused(save, tmp_path):
    paths = {updates: save(updates, bias=[1.0, 2.0]) for updates in (90, 100)}
    torch.save(average(paths), tmp_path / "average.pt")
    history = read_history(tmp_path / "average.pt")
    assert history == weights.History(100, 50.0, parameters=2, averaged_updates=[90, 100])
    with pytest.raises(UserError, match=r"checkpoint_1_90\.pt is no average: make it with"):
        read_history(paths[90])


def test_the_time_of_several_ranks_is_a_number(save, tmp_path):
    # fairseq averages it over the ranks and saves the tensor; a result is JSON.
    torch.save(average({90: save(90, torch.tensor(45.0), bias=[1.0])}), tmp_path / "average.pt")
    seconds = read_history(tmp_path / "average.pt").seconds
    assert type(seconds) is float and seconds == 45
