"""The recipes run for real, on the CPU and with tiny models: resume, fp16, two ranks, two nodes."""

import re
import shutil
import socket
from itertools import pairwise

import pytest
import torch

import shape_fairseq.models  # noqa: F401 - lets torch load fairseq's checkpoints
from shape_fairseq.evaluation.results import read

# Without dropout and shift nothing is random but the order, so runs can be compared.
EXACT = "--dropout 0 --attention-dropout 0 --activation-dropout 0 --log-format json"
TINY = {"ARCH_SIZE": "tiny", "GPUS": 0, "SAVE_EVERY": 2, "EXTRA": f"{EXACT} --disable-validation"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def weights(checkpoint) -> dict:
    return torch.load(checkpoint, map_location="cpu")["model"]


def largest_difference(one, other) -> float:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    return max(
        (ours[name] - theirs[name]).abs().max().item() for name in ours if ours[name].numel()
    )


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(recipes, demo, tmp_path_factory):
    """A training of six updates in one go, one process, two batches an update."""
    save = tmp_path_factory.mktemp("alone") / "save"
    batch = {"BATCH_TOKENS": 2000, "MAX_TOKENS": 1000}
    recipes.run("vanilla", "rpe", DATA=demo, SAVE=save, UPDATES=6, **batch, **TINY)
    return save


def test_a_rerun_resumes_and_a_complete_training_is_left_alone(recipes, demo, alone, tmp_path):
    save = tmp_path / "save"
    training = {"DATA": demo, "SAVE": save, "BATCH_TOKENS": 2000, "MAX_TOKENS": 1000, **TINY}
    # What fairseq refuses is not remembered.
    wrong = recipes.start("vanilla", "rpe", **training | {"EXTRA": "--no-such-option"})
    assert "--no-such-option" in wrong.communicate()[1] and wrong.returncode
    recipes.run("vanilla", "rpe", UPDATES=4, **training)
    resumed = recipes.run("vanilla", "rpe", UPDATES=6, **training)
    assert re.search(r"Loaded checkpoint \S+ \(epoch 1 @ 4 updates\)", resumed)
    assert largest_difference(save / "checkpoint_last.pt", alone / "checkpoint_last.pt") < 1e-6
    check_that_nothing_is_trained(recipes, save, training)
    # A kill may come between the last checkpoint and the note that all is done.
    (save / "completed_updates.txt").unlink()
    check_that_nothing_is_trained(recipes, save, training)
    assert (save / "completed_updates.txt").read_text() == "6\n"
    check_that_other_trainings_are_refused(recipes, training)


def check_that_nothing_is_trained(recipes, save, training):
    before = (save / "checkpoint_last.pt").stat()
    process = recipes.start("vanilla", "rpe", UPDATES=6, **training)
    assert "all 6 updates are done" in process.communicate()[1]
    assert (save / "checkpoint_last.pt").stat() == before


def check_that_other_trainings_are_refused(recipes, training):
    """Whether there are updates left to do or not."""
    for updates in (6, 8):
        refusal = recipes.refused("vanilla", "ape", UPDATES=updates, **training)
        assert "MODEL=rpe" in refusal and "choose another SAVE" in refusal
        assert "SETTING=vanilla" in recipes.refused(
            "extrapolate", "rpe", UPDATES=updates, **training
        )
        assert "SEED=1" in recipes.refused("vanilla", "rpe", UPDATES=updates, SEED=2, **training)
        other = training | {"EXTRA": "--dropout 0.3"}
        refusal = recipes.refused("vanilla", "rpe", UPDATES=updates, **other)
        assert f"EXTRA={TINY['EXTRA']}" in refusal


def test_the_note_of_completion_is_no_program(recipes, demo, alone, tmp_path):
    save = tmp_path / "save"
    shutil.copytree(alone, save)
    (save / "completed_updates.txt").write_text("BASH_VERSINFO[$(touch x)]\n")
    training = {"DATA": demo, "SAVE": save, "BATCH_TOKENS": 2000, "MAX_TOKENS": 1000, **TINY}
    refusal = recipes.refused("vanilla", "rpe", UPDATES=6, **training)
    assert "completed_updates.txt holds no number" in refusal
    for folder in (save, tmp_path, recipes.top, recipes.top.parent):
        assert not (folder / "x").exists()


def test_two_nodes_train_as_one_process_does(recipes, demo, alone, tmp_path):
    # The nodes are two processes with ranks of their own that meet over loopback.
    save, port = tmp_path / "save", free_port()
    training = {"DATA": demo, "SAVE": save, "UPDATES": 6, "BATCH_TOKENS": 2000, "MAX_TOKENS": 1000}
    nodes = {"NODES": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        recipes.start("vanilla", "rpe", NODE_RANK=rank, **training, **nodes, **TINY)
        for rank in range(2)
    ]
    for process in started:
        output, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
    assert "training on 2 devices" in (save / "train.log").read_text()
    assert largest_difference(save / "checkpoint_last.pt", alone / "checkpoint_last.pt") < 1e-4


def test_fairseqs_own_recipe_in_fp16_on_two_ranks_with_learning_curves(recipes, demo, tmp_path):
    save = tmp_path / "save"
    ranks = {"CPU_RANKS": 2, "MASTER_PORT": free_port(), "BATCH_TOKENS": 2000, "MAX_TOKENS": 1000}
    small = {"ARCH_SIZE": "tiny", "GPUS": 0, "UPDATES": 2, "SAVE_EVERY": 1, "FP16": 1}
    recipes.run("scaling_nmt", "shape", DATA=demo, SAVE=save, **ranks, **small)
    assert (save / "hardware.txt").read_text() == "CPU, 2 processes\n"
    log = (save / "train.log").read_text()
    # Appendix E: perplexity by update and by wall clock.
    assert re.search(r"valid on .* ppl [\d.]+ .* num_updates 1\b", log)
    assert re.search(r"valid on .* ppl [\d.]+ .* num_updates 2\b", log)
    # Only half precision scales the loss.
    assert re.search(r"num_updates 2 .* loss_scale \d+ .* wall [\d.]+", log)
    assert not [one for one, other in pairwise(log.splitlines()) if one == other]
    curves = {path.parent.name for path in (save / "tensorboard").glob("*/*tfevents*")}
    assert curves == {"train", "valid"}
    # fairseq saves the time of several ranks as a tensor; a result has it as a number.
    quick = {"AVERAGE": 2, "SUBSETS": "valid", "GENERATE_EXTRA": "--beam 1 --max-len-a 1"}
    recipes.run("evaluate", save, DATA=demo, RESULTS=tmp_path / "results", GPUS=0, **quick)
    (result,) = (tmp_path / "results").glob("*.json")
    assert 0 < read(result).training["seconds"] < 600
