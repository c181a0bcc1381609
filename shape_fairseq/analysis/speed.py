"""Table 6: training and generation speed relative to APE, peak memory, parameters.

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
from fairseq import utils
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from ..command_line import positive
from ..errors import UserError
from ..evaluation import paper
from ..evaluation.tables import NOT_REPORTED, Table
from . import base, figures
from .compute.models import DataBin, batches, device, load, spread

NAME = "speed"
BASELINE = "ape"
WARM_UP = 2  # turns that are not counted

Clock = Callable[[], float]
Step = Callable[[int], None]  # what a model does in its turn of this number

# fairseq uses a name of torch that is going to change.
warnings.filterwarnings("ignore", "`torch.cuda.amp.autocast")


def make_trainer(path: Path, data: DataBin, where: torch.device) -> Trainer:
    """fairseq's trainer for the model of a checkpoint, with the options it was trained with."""
    model, config = load(path, data)
    config.common.cpu = where.type == "cpu"
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


def synchronize(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize()


def computing_clock(where: torch.device) -> Clock:
    """Wall clock on a GPU, computing time on the CPU."""
    return time.perf_counter if where.type == "cuda" else time.process_time


def seconds(step: Step, turn: int, where: torch.device, clock: Clock) -> float:
    """How long a step takes."""
    synchronize(where)
    start = clock()
    step(turn)
    synchronize(where)
    return clock() - start


def in_turns(
    steps: dict[str, Step],
    turns: int,
    where: torch.device,
    title: str,
    warm_up: int = WARM_UP,
    clock: Clock | None = None,
) -> dict[str, list[float]]:
    """Seconds of each model in every turn; the order changes, so that none is always first."""
    labels = list(steps)
    found: dict[str, list[float]] = {label: [] for label in labels}
    for turn in tqdm(range(warm_up + turns), desc=title, unit="turn", disable=None, leave=False):
        first = turn % len(labels)
        for label in labels[first:] + labels[:first]:
            taken = seconds(steps[label], turn, where, clock or computing_clock(where))
            if turn >= warm_up:
                found[label].append(taken)
    return found


def summarize(found: dict[str, list[float]]) -> dict[str, dict]:
    """The median time and the median speed relative to APE, turn by turn."""
    return {
        label: {
            "seconds": statistics.median(times),
            "speed": statistics.median(
                ape / ours for ape, ours in zip(found[BASELINE], times, strict=True)
            ),
            "turns": times,
        }
        for label, times in found.items()
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


def peak_memory(step: Step, where: torch.device) -> int:
    """Bytes that one step needs beyond what was there before it."""
    if where.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(0)
        return torch.cuda.max_memory_allocated() - before
    with without_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step(0)
    return max(accumulate(allocations(found)), default=0)


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
    where: torch.device,
) -> dict:
    """Training, generation, memory and parameters of all models."""
    trainers = {label: make_trainer(path, data, where) for label, path in models.items()}

    def on_device(subset: str) -> list[dict]:
        found = some_batches(data, subset, turns, max_tokens)
        return [utils.move_to_cuda(one) for one in found] if where.type == "cuda" else found

    training, validation = on_device("train"), on_device("valid")
    steps = {label: train_step(trainer, training) for label, trainer in trainers.items()}
    trained = summarize(in_turns(steps, turns, where, "train"))
    memory = {label: peak_memory(step, where) for label, step in steps.items()}
    for trainer in trainers.values():
        trainer.model.eval()
    searches = {
        label: generation_step(trainer, validation, beam) for label, trainer in trainers.items()
    }
    generated = summarize(in_turns(searches, turns, where, "generate"))
    return {
        "setting": data.folder.name,
        "device": str(where),
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


def plot(result: dict) -> dict:
    """Training speed, generation speed and memory of a step, side by side."""
    models = result["models"]
    labels = list(models)
    panels = {
        "training speed (APE = 1)": ([models[one]["training"]["speed"] for one in labels], "x%.2f"),
        "generation speed (APE = 1)": (
            [models[one]["generation"]["speed"] for one in labels],
            "x%.2f",
        ),
        "memory of a training step (MB)": (
            [models[one]["step_memory"] / 1e6 for one in labels],
            "%.0f",
        ),
    }
    figure, axes = figures.subplots(1, len(panels), figsize=(9, 0.9 + 0.42 * len(labels)))
    for axis, (title, (values, form)) in zip(axes, panels.items(), strict=True):
        bars = axis.barh(
            [figures.title(label) for label in labels],
            values,
            color=[figures.colour(label, labels) for label in labels],
        )
        axis.bar_label(bars, fmt=form, padding=3, fontsize=8)
        axis.set_title(title, loc="left")
        axis.margins(x=0.2)
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    return {NAME: figure}


def table(result: dict) -> Table:
    """Table 6 as far as a few steps can tell, with the paper's speed."""
    rows = []
    for label, found in result["models"].items():
        theirs = paper.TABLE_2.get((result["setting"], label))
        rows.append(
            [
                figures.title(label),
                f"{found['training']['seconds'] * 1000:.0f} ms",
                f"x{found['training']['speed']:.2f}",
                NOT_REPORTED if theirs is None else f"x{theirs[-1]:.2f}",
                f"x{found['generation']['speed']:.2f}",
                f"{found['step_memory'] / 1e6:.1f} MB",
                f"{found['parameters']:,}",
            ]
        )
    header = ["Model", "Training step", "Speed", "Paper", "Generation", "Memory", "Parameters"]
    turns = len(next(iter(result["models"].values()))["training"]["turns"])
    note = f"Medians of {turns} turns on {result['device']}; memory of a step beyond the weights."
    return Table(f"Table 6: speed on {result['setting'].upper()}", header, rows, [note])


def main(arguments: list[str]) -> None:
    """Training and generation speed side by side, memory, parameters (table 6)."""
    parser = base.command(NAME, main.__doc__)
    base.add_models(parser)
    base.add_setting(parser, "vanilla")
    parser.add_argument(
        "--turns", type=positive, default=15, help="of each model (default: %(default)s)"
    )
    parser.add_argument("--beam", type=positive, default=4, help="default: %(default)s")
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    models = base.checkpoints(args.models)
    if BASELINE not in models:
        raise UserError("speed is relative to APE: give ape=CHECKPOINT too")
    data, where = DataBin(args.data, args.setting), device(args.cpu)
    signed = base.signature(
        *(args.data, models),
        setting=args.setting,
        turns=args.turns,
        beam=args.beam,
        max_tokens=args.max_tokens,
        threads=torch.get_num_threads(),
    )
    result = compute(data, models, args.turns, args.beam, args.max_tokens, where)
    base.publish(args.out, NAME, signed, result, plot(result))
    for label, found in result["models"].items():
        print(
            f"{figures.title(label)}: training x{found['training']['speed']:.2f}"
            f" ({found['training']['seconds'] * 1000:.0f} ms a step), generation"
            f" x{found['generation']['speed']:.2f}, {found['step_memory'] / 1e6:.0f} MB a step,"
            f" {found['parameters']:,} parameters"
        )
