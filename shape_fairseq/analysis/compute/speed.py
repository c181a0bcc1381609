"""Training and generation speed relative to APE, peak memory, parameters.

All models take turns on the same batches, so that a noisy machine slows all of them, and a model's
speed is the median of its ratios to APE, turn by turn. On a CPU the time is what the process spent
computing: what other programs took is not counted.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from .models import DataBin, batches, load, spread, to_device

BASELINE = "ape"
WARM_UP = 2  # turns that are not counted

Clock = Callable[[], float]
Step = Callable[[int], None]  # what a model does in its turn of this number

# fairseq uses a name of torch that is going to change.
warnings.filterwarnings("ignore", "`torch.cuda.amp.autocast")


def make_trainer(path: Path, data: DataBin, device: torch.device) -> Trainer:
    """fairseq's trainer for the model of a checkpoint, with the options it was trained with."""
    model, config = load(path, data)
    config.common.cpu = device.type == "cpu"
    config.common.tensorboard_logdir = None
    config.distributed_training.distributed_world_size = 1
    # The optimizer's state does not move the speed of a step; a fresh one is as fast.
    return Trainer(config, data.task, model, data.task.build_criterion(config.criterion))


def some_batches(data: DataBin, subset: str, number: int, max_tokens: int) -> list[dict]:
    """Batches spread over the lengths of a subset, `number` of them."""
    dataset = data.subset(subset)
    made = [
        batch for _, batch in batches(dataset, spread(len(dataset), 50 * number), max_tokens, "")
    ]
    return [made[place * len(made) // number] for place in range(number)]


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def computing_clock(device: torch.device) -> Clock:
    """Wall clock on a GPU, computing time on the CPU."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def seconds(step: Step, turn: int, device: torch.device, clock: Clock) -> float:
    """How long a step takes."""
    synchronize(device)
    start = clock()
    step(turn)
    synchronize(device)
    return clock() - start


def in_turns(
    steps: dict[str, Step],
    turns: int,
    device: torch.device,
    title: str,
    warm_up: int = WARM_UP,
    clock: Clock | None = None,
) -> dict[str, list[float]]:
    """Seconds of each model in every turn; the order changes, so that none is always first."""
    labels = list(steps)
    times: dict[str, list[float]] = {label: [] for label in labels}
    for turn in tqdm(range(warm_up + turns), desc=title, unit="turn", disable=None, leave=False):
        first = turn % len(labels)
        for label in labels[first:] + labels[:first]:
            taken = seconds(steps[label], turn, device, clock or computing_clock(device))
            if turn >= warm_up:
                times[label].append(taken)
    return times


def summarize(seconds_of: dict[str, list[float]]) -> dict[str, dict]:
    """The median time and the median speed relative to APE, turn by turn."""
    return {
        label: {
            "seconds": statistics.median(times),
            "speed": statistics.median(
                ape / ours for ape, ours in zip(seconds_of[BASELINE], times, strict=True)
            ),
            "turns": times,
        }
        for label, times in seconds_of.items()
    }


def train_step(trainer: Trainer, samples: list[dict]) -> Step:
    """One update of the model, forwards and backwards, as fairseq-train does it."""

    def step(turn: int) -> None:
        with metrics.aggregate(new_root=True):
            trainer.train_step([samples[turn % len(samples)]])

    return step


def generation_step(trainer: Trainer, samples: list[dict], beam: int) -> Step:
    """Beam search to the length of the reference, whatever the model would have written."""
    model = trainer.model

    def step(turn: int) -> None:
        batch = samples[turn % len(samples)]
        length = batch["target"].size(1)
        options = argparse.Namespace(beam=beam, max_len_a=0, max_len_b=length, min_len=length)
        generator = trainer.task.build_generator([model], options)
        trainer.task.inference_step(generator, [model], batch)

    return step


@contextmanager
def without_stderr() -> Iterator[None]:
    """Nothing reaches the terminal: torch's profiler writes to it from C++."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def peak_memory(step: Step, device: torch.device) -> int:
    """Bytes that one step needs beyond what was there before it."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(0)
        return torch.cuda.max_memory_allocated() - before
    with (
        without_stderr(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled,
    ):
        step(0)
    return max(accumulate(allocations(profiled)), default=0)


def allocations(profiler: profile) -> list[int]:
    """Bytes that a profiled CPU program took (or, negative, gave back), in their order."""
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def compute(
    data: DataBin,
    models: dict[str, Path],
    turns: int,
    beam: int,
    max_tokens: int,
    device: torch.device,
) -> dict:
    """Training, generation, memory and parameters of all models."""
    trainers = {label: make_trainer(path, data, device) for label, path in models.items()}

    def on_device(subset: str) -> list[dict]:
        chosen = some_batches(data, subset, turns, max_tokens)
        return [to_device(batch, device) for batch in chosen]

    training, validation = on_device("train"), on_device("valid")
    steps = {label: train_step(trainer, training) for label, trainer in trainers.items()}
    trained = summarize(in_turns(steps, turns, device, "train"))
    memory = {label: peak_memory(step, device) for label, step in steps.items()}
    for trainer in trainers.values():
        trainer.model.eval()
    searches = {
        label: generation_step(trainer, validation, beam) for label, trainer in trainers.items()
    }
    generated = summarize(in_turns(searches, turns, device, "generate"))
    return {
        "setting": data.setting,
        "device": str(device),
        "models": {
            label: {
                "training": trained[label],
                "generation": generated[label],
                "step_memory": memory[label],
                "parameters": sum(
                    weight.numel() for weight in trainer.model.parameters() if weight.requires_grad
                ),
            }
            for label, trainer in trainers.items()
        },
    }
