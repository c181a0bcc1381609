"""Speed and memory of all models, and of RPE as others compute it, at growing lengths.

All models take turns, so that a noisy machine slows all of them; a speed is the median of a model's
ratios to fairseq's own `transformer` (APE), turn by turn. Models are transformer-base with random
weights, batches are random tokens without padding. On a GPU where there is one, else on the CPU.
"""

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.modules import MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn
from torch.nn import functional

import shape_fairseq.models  # noqa: F401 - registers the models
from benchmarks.lookup_attention import LookupMultiheadAttention, lookup_attention
from shape_fairseq.analysis import base, figures
from shape_fairseq.analysis.compute.models import choose_device
from shape_fairseq.analysis.compute.speed import Step, in_turns, peak_memory, summarize
from shape_fairseq.command_line import Parser
from shape_fairseq.errors import run
from shape_fairseq.evaluation.results import versions
from shape_fairseq.evaluation.table import Table
from shape_fairseq.model_names import MODELS
from shape_fairseq.modules.blockwise_attention import blockwise_relative_attention
from shape_fairseq.modules.relative_attention import RelativeMultiheadAttention

NAME = "bench"
MAX_RELATIVE_DISTANCE = int(MODELS["rpe"].options["--max-relative-distance"])
LENGTHS = (27, 270, 512, 1024, 2048)  # 27 and 270: VANILLA and INTERPOLATE on average
LOOKUP = "lookup"
TITLES = {name: model.title for name, model in MODELS.items()} | {LOOKUP: "RPE, T×T×d"}
ARCHITECTURES = {name: model.architecture for name, model in MODELS.items()}
ARCHITECTURES[LOOKUP] = ARCHITECTURES["rpe"]
WIDTH, HEADS, LAYERS = 512, 8, 12
WARM_UP_TOKENS = 4  # of generation; the other levels warm up while their memory is watched


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What all models are measured under."""

    size: str
    vocabulary: int
    tokens: int  # in a batch
    device: torch.device


# What a GPU should do by the estimate of benchmarks.gpu_cost, as numbers and as a table.
Estimate = Callable[[dict[str, dict[int, dict]], Conditions], tuple[dict, Table]]


@dataclasses.dataclass(frozen=True)
class Level:
    """Something that a model does, and who takes part in it."""

    title: str
    models: tuple[str, ...]
    turns: int
    steps: Callable[[tuple[str, ...], int, Conditions], dict[str, Step]]
    memory: bool = True  # is of interest


@dataclasses.dataclass(frozen=True)
class Goal:
    """A number that is to be reached, read off the result of one level at one length."""

    what: str
    level: str
    lengths: tuple[int, ...]
    value: Callable[[dict], float]
    wanted: float
    at_most: bool = False

    def met(self, value: float) -> bool:
        return value <= self.wanted if self.at_most else value >= self.wanted


def speed_of(model: str) -> Callable[[dict], float]:
    return lambda cell: cell[model]["speed"]


def times_faster_than_lookup(cell: dict) -> float:
    return cell["rpe"]["speed"] / cell[LOOKUP]["speed"]


def extra_memory_of(model: str) -> Callable[[dict], float]:
    return lambda cell: cell[model]["memory"] / cell["ape"]["memory"] - 1


SHOWN = (27, 270, 1024)
NEWER = {"cape": 0.97, "randomized": 0.97, "rope": 0.97, "alibi": 0.92, "t5_bias": 0.92}
GOALS = (
    Goal("SHAPE training step / APE", "training", LENGTHS, speed_of("shape"), 0.99),
    Goal("RPE training step / APE", "training", (27,), speed_of("rpe"), 0.95),
    Goal("RPE training step / APE", "training", (270,), speed_of("rpe"), 0.90),
    Goal("RPE training step / APE", "training", (1024,), speed_of("rpe"), 0.80),
    *(
        Goal(f"RPE {level} / T×T×d", level, (512,), times_faster_than_lookup, 3)
        for level in ("kernel", "causal kernel", "attention", "causal attention")
    ),
    *(
        Goal(f"RPE {level}'s extra memory", level, (2048,), extra_memory_of("rpe"), 0.25, True)
        for level in ("kernel", "causal kernel", "attention", "causal attention")
    ),
    *(
        Goal(f"RoPE {level}'s extra memory", level, (2048,), extra_memory_of("rope"), 0.25, True)
        for level in ("attention", "causal attention")
    ),
    Goal("RPE beam-4 generation / APE", "beam 4", LENGTHS, speed_of("rpe"), 0.90),
    *(
        Goal(f"{MODELS[model].title} {what} / APE", level, SHOWN, speed_of(model), wanted)
        for model, wanted in NEWER.items()
        for level, what in (("training", "training step"), ("beam 4", "beam-4 generation"))
    ),
)


def batch_size(length: int, conditions: Conditions) -> int:
    return max(1, conditions.tokens // length)


def attention_module(model: str, causal: bool) -> nn.Module:
    """The self-attention of one layer of transformer-base."""
    if model == "ape":
        return MultiheadAttention(WIDTH, HEADS, self_attention=True)
    if model == LOOKUP:
        distance = MAX_RELATIVE_DISTANCE
        build = partial(LookupMultiheadAttention, max_relative_distance=distance, causal=causal)
    else:
        options = argparse.Namespace()
        model_class = ARCH_MODEL_REGISTRY[ARCHITECTURES[model]]
        model_class.check_options(options)  # fills in the defaults
        side = SimpleNamespace(attention_heads=HEADS, embed_dim=WIDTH)
        build = model_class.attention_builder(options, side, causal)
    return build(WIDTH, HEADS, self_attention=True)


def stock_kernel(query: Tensor, key: Tensor, value: Tensor, *_, mask: Tensor | None) -> Tensor:
    """What fairseq's attention does between its projections: torch's fused attention."""
    # B x heads x T x d
    heads = (tensor.unflatten(0, (-1, HEADS)) for tensor in (query, key, value))
    fused = functional.scaled_dot_product_attention(*heads, attn_mask=mask, scale=1.0)
    return fused.flatten(0, 1)


def kernel_steps(causal: bool) -> Callable:
    """Forward and backward through what is between the projections: heads in, heads out."""

    def steps(models: tuple[str, ...], length: int, conditions: Conditions) -> dict[str, Step]:
        sequences, width = HEADS * batch_size(length, conditions), WIDTH // HEADS
        heads = [
            torch.randn(length, sequences, width, device=conditions.device).transpose(0, 1)
            for _ in range(4)
        ]
        *inputs, grad_output = heads
        distances = 2 * MAX_RELATIVE_DISTANCE + 1
        inputs += [torch.randn(distances, width, device=conditions.device) for _ in range(2)]
        for tensor in inputs:
            tensor.requires_grad_()
        future = torch.full((length, length), -torch.inf, device=conditions.device).triu(1)
        mask = future if causal else None
        kernels = {
            "ape": partial(stock_kernel, mask=mask),
            "rpe": partial(blockwise_relative_attention, causal=causal),
            LOOKUP: partial(lookup_attention, mask=mask),
        }

        def step_of(kernel: Callable) -> Step:
            return lambda _: torch.autograd.grad(
                kernel(*inputs), inputs, grad_output, allow_unused=True
            )

        return {model: step_of(kernels[model]) for model in models}

    return steps


def attention_steps(causal: bool) -> Callable:
    """Forward and backward through one self-attention, of the encoder or of the decoder."""

    def steps(models: tuple[str, ...], length: int, conditions: Conditions) -> dict[str, Step]:
        shape = (length, batch_size(length, conditions), WIDTH)
        inputs = torch.randn(shape, device=conditions.device, requires_grad=True)
        grad_output = torch.randn(shape, device=conditions.device)
        future = torch.full((length, length), -torch.inf, device=conditions.device).triu(1)
        mask = future if causal else None

        def step_of(module: nn.Module) -> Step:
            def step(_: int) -> None:
                output, _ = module(inputs, inputs, inputs, need_weights=False, attn_mask=mask)
                output.backward(grad_output)
                inputs.grad = None

            return step

        return {
            model: step_of(attention_module(model, causal).to(conditions.device))
            for model in models
        }

    return steps


def vocabulary(size: int) -> Dictionary:
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(str(index))
    return words


def build_model(model: str, words: Dictionary, conditions: Conditions) -> nn.Module:
    """A model of fairseq's architecture of that name, with random weights."""
    arch = ARCHITECTURES[model] + conditions.size
    args = argparse.Namespace(
        share_all_embeddings=True,
        dropout=0.1,
        max_source_positions=2 * LENGTHS[-1],
        max_target_positions=2 * LENGTHS[-1],
    )
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    built = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    if model == LOOKUP:
        for module in built.modules():
            if isinstance(module, RelativeMultiheadAttention):
                module.__class__ = LookupMultiheadAttention
    return built.to(conditions.device)


def random_sample(length: int, words: Dictionary, conditions: Conditions) -> dict:
    """A batch as fairseq's tasks make them."""
    count = batch_size(length, conditions)
    shape, device = (count, length), conditions.device
    source, target = (
        torch.randint(words.nspecial, len(words), shape, device=device) for _ in range(2)
    )
    return {
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.full((count,), length, device=device),
            "prev_output_tokens": target,
        },
        "target": target,
        "ntokens": target.numel(),
    }


def training_steps(models: tuple[str, ...], length: int, conditions: Conditions) -> dict[str, Step]:
    """One update: forward, label-smoothed loss, backward, Adam."""
    words = vocabulary(conditions.vocabulary)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    sample = random_sample(length, words, conditions)

    def step_of(model: nn.Module) -> Step:
        optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-4)

        def step(_: int) -> None:
            optimizer.zero_grad()
            loss, size, _ = criterion(model, sample)
            (loss / size).backward()
            optimizer.step()

        return step

    return {model: step_of(build_model(model, words, conditions)) for model in models}


def position_steps(models: tuple[str, ...], length: int, conditions: Conditions) -> dict[str, Step]:
    """The position embedding of a batch, all that SHAPE and its like do otherwise than APE."""
    words = vocabulary(conditions.vocabulary)
    tokens = random_sample(length, words, conditions)["target"]

    def step_of(model: nn.Module) -> Step:
        return lambda _: model.train().encoder.embed_positions(tokens)

    return {model: step_of(build_model(model, words, conditions)) for model in models}


def first_words(sample: dict, number: int) -> dict:
    """The beginning of every sentence of a batch."""
    source = sample["net_input"]["src_tokens"][:, :number]
    lengths = sample["net_input"]["src_lengths"].clamp(max=number)
    return {"net_input": {"src_tokens": source, "src_lengths": lengths}}


def generation_steps(beam: int) -> Callable:
    """Translate a batch to sentences that are as long as its sources."""

    def steps(models: tuple[str, ...], length: int, conditions: Conditions) -> dict[str, Step]:
        words = vocabulary(conditions.vocabulary)
        sample = random_sample(length, words, conditions)

        def step_of(model: nn.Module) -> Step:
            def generate(batch: dict) -> None:
                wanted = batch["net_input"]["src_tokens"].size(1)
                SequenceGenerator(
                    [model], words, beam_size=beam, max_len_b=wanted, min_len=wanted
                ).generate([model], batch)

            model.eval()
            generate(first_words(sample, WARM_UP_TOKENS))
            return lambda _: generate(sample)

        return {model: step_of(build_model(model, words, conditions)) for model in models}

    return steps


ALL = tuple(TITLES)
KERNELS = ("ape", "rpe", LOOKUP)
ATTENTION = ("ape", "rpe", "rope", "alibi", "t5_bias", LOOKUP)
POSITIONS = ("ape", "shape", "cape", "randomized")
LEVELS = {
    "positions": Level("position embedding", POSITIONS, 21, position_steps),
    "kernel": Level("attention, no projections", KERNELS, 7, kernel_steps(False)),
    "causal kernel": Level("causal attention, no projections", KERNELS, 7, kernel_steps(True)),
    "attention": Level("attention of an encoder layer", ATTENTION, 7, attention_steps(False)),
    "causal attention": Level("attention of a decoder layer", ATTENTION, 7, attention_steps(True)),
    "training": Level("training step", ALL, 5, training_steps),
    "greedy": Level("greedy generation", ALL, 3, generation_steps(1), memory=False),
    "beam 4": Level("beam-4 generation", ALL, 3, generation_steps(4), memory=False),
}


def too_large(model: str, level: str, length: int, device: torch.device) -> bool:
    """Whether the T x T x d tensors of all layers do not fit into the memory."""
    layers = {"training": LAYERS, "greedy": 0, "beam 4": 0}.get(level, 1)
    # Keys and values, kept for the backward pass, and the gradients of one layer's.
    needed = (2 * layers + 2) * length**2 * (WIDTH // HEADS) * 4
    if device.type == "cuda":
        present = torch.cuda.get_device_properties(device).total_memory
    else:
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return model == LOOKUP and needed > 0.25 * present  # the other models need room too


def measure(
    level: str, length: int, chosen: list[str], turns: int | None, conditions: Conditions
) -> dict:
    """Times, speeds and peak memory of all chosen models that take part in a level."""
    fitting = tuple(
        model
        for model in LEVELS[level].models
        if model in chosen and not too_large(model, level, length, conditions.device)
    )
    torch.manual_seed(1)
    steps = LEVELS[level].steps(fitting, length, conditions)
    memory = {
        model: {"memory": peak_memory(step, conditions.device)} if LEVELS[level].memory else {}
        for model, step in steps.items()
    }
    title = f"{LEVELS[level].title}, {length} tokens"
    turns = turns or LEVELS[level].turns
    # What people wait for is the wall clock, idle cores included.
    clock = time.perf_counter
    turn_times = in_turns(steps, turns, conditions.device, title, warm_up=0, clock=clock)
    return {model: {**times, **memory[model]} for model, times in summarize(turn_times).items()}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{0 if seconds > 0.01 else 2}f}"


def speed_cell(measured: dict | None) -> str:
    """The median speed with its lowest and highest, or that it did not fit."""
    if measured is None:
        return "no room"
    lowest, highest = measured["range"]
    return f"{measured['speed']:.2f} ({lowest:.2f}-{highest:.2f})"


def with_ranges(cell: dict) -> dict:
    """Add the lowest and the highest ratio to APE of all turns."""
    for measured in cell.values():
        ratios = [
            ape / ours for ape, ours in zip(cell["ape"]["turns"], measured["turns"], strict=True)
        ]
        measured["range"] = [min(ratios), max(ratios)]
    return cell


def measured_models(level: str, by_length: dict[int, dict]) -> list[str]:
    """The models of a level that were chosen and had room at one length at least."""
    return [model for model in LEVELS[level].models if any(model in c for c in by_length.values())]


def tables(cells: dict[str, dict[int, dict]]) -> Iterator[Table]:
    """For each level a table of speeds and one of memory."""
    for level, by_length in cells.items():
        models = measured_models(level, by_length)
        header = ["tokens", "APE, ms", *(f"{TITLES[model]} / APE" for model in models[1:])]
        rows = [
            [str(length), milliseconds(cell["ape"]["seconds"])]
            + [speed_cell(cell.get(model)) for model in models[1:]]
            for length, cell in by_length.items()
        ]
        yield Table(f"Speed: {LEVELS[level].title}", header, rows)
        if LEVELS[level].memory:
            rows = [
                [str(length)]
                + [
                    f"{cell[model]['memory'] / 1e6:,.0f}" if model in cell else "no room"
                    for model in models
                ]
                for length, cell in by_length.items()
            ]
            header = ["tokens", *(f"{TITLES[model]}, MB" for model in models)]
            yield Table(f"Peak memory: {LEVELS[level].title}", header, rows)


def goal_rows(cells: dict[str, dict[int, dict]]) -> list[list[str]]:
    """Every goal with what was measured, where it was."""
    rows = []
    for goal in GOALS:
        for length in goal.lengths:
            try:
                value = goal.value(cells[goal.level][length])
            except KeyError:  # not measured
                continue
            sign = "≤" if goal.at_most else "≥"
            verdict = "met" if goal.met(value) else "MISSED"
            rows.append([goal.what, str(length), f"{value:.2f}", f"{sign} {goal.wanted}", verdict])
    return rows


def plot(cells: dict[str, dict[int, dict]]) -> dict:
    """Speed relative to APE and peak memory by length, a column for each level."""
    figure, axes = figures.subplots(2, len(cells), figsize=(3.1 * len(cells), 5), squeeze=False)
    for column, (level, by_length) in zip(axes.T, cells.items(), strict=True):
        for model in measured_models(level, by_length):
            lengths = [length for length, cell in by_length.items() if model in cell]
            chosen = [by_length[length][model] for length in lengths]
            style = {
                "color": figures.colour(model, list(TITLES)),
                "marker": figures.marker(model),
                "label": TITLES[model],
            }
            column[0].plot(lengths, [measured["speed"] for measured in chosen], **style)
            if LEVELS[level].memory:
                column[1].plot(lengths, [measured["memory"] / 1e6 for measured in chosen], **style)
        column[0].set_title(LEVELS[level].title, loc="left")
        column[0].set_ylim(0, 1.05 * column[0].get_ylim()[1])  # room for the topmost markers
        column[1].set_yscale("log")
        column[0].set_xlabel("tokens in a sequence")
        column[1].set_xlabel("tokens in a sequence")
        column[1].set_visible(LEVELS[level].memory)
        for axis in column:
            axis.set_xscale("log", base=2)
            axis.set_xticks(list(by_length), [str(length) for length in by_length])
            axis.xaxis.set_minor_locator(figures.NullLocator())
            axis.grid(visible=True)
    axes[0][0].set_ylabel("speed (APE = 1)")
    axes[1][0].set_ylabel("peak memory, MB")
    most = max(range(len(cells)), key=lambda index: len(axes[0][index].lines))
    axes[0][most].legend()
    return {NAME: figure}


def growth(cells: dict[str, dict[int, dict]]) -> Iterator[str]:
    """How time and memory grow from the second longest to the longest."""
    for level, by_length in cells.items():
        if len(by_length) < 2 or not LEVELS[level].memory:
            continue
        shorter, longer = list(by_length)[-2:]
        for model in LEVELS[level].models:
            if model in by_length[longer] and model in by_length[shorter]:
                before, after = by_length[shorter][model], by_length[longer][model]
                yield (
                    f"{LEVELS[level].title}, {shorter} to {longer} tokens: {TITLES[model]}"
                    f" time x{after['seconds'] / before['seconds']:.2f},"
                    f" memory x{after['memory'] / before['memory']:.2f}"
                )


def main(arguments: list[str] | None = None, estimate: Estimate | None = None) -> None:
    """Compare the speed and memory of all models at growing lengths."""
    parser = Parser(
        prog="python -m benchmarks.speed",
        description=main.__doc__,
        example="--tiny --levels training --lengths 27 --turns 1 --out speed",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/bench") / time.strftime("%Y-%m-%d-%H%M%S"),
        metavar="DIR",
        help="gets bench.json, .png and .svg (default: a new folder in runs/bench)",
    )
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument(
        "--models",
        nargs="+",
        choices=TITLES,
        default=list(TITLES),
        help="beside ape (default: all)",
    )
    parser.add_argument("--lengths", nargs="+", type=base.positive, default=list(LENGTHS))
    parser.add_argument(
        "--turns", type=base.positive, help="of each model (default: 3 to 7, by level)"
    )
    parser.add_argument("--tokens", type=base.positive, default=4096, help="in a batch")
    parser.add_argument(
        "--tiny", action="store_true", help="small models and vocabulary, to see it work"
    )
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    conditions = Conditions(
        size="_tiny" if args.tiny else "_wmt_en_de",
        vocabulary=500 if args.tiny else 32_768,
        tokens=args.tokens,
        device=choose_device(args.cpu),
    )
    chosen = ["ape", *args.models]  # all speeds are relative to APE
    cells: dict[str, dict[int, dict]] = {}
    for level in args.levels:
        for length in sorted(args.lengths):
            cell = with_ranges(measure(level, length, chosen, args.turns, conditions))
            cells.setdefault(level, {})[length] = cell
            speeds = ", ".join(
                f"{TITLES[model]} {speed_cell(measured)}" for model, measured in cell.items()
            )
            print(f"{LEVELS[level].title}, {length} tokens: {speeds}", flush=True)
    report(cells, args.out, conditions, estimate)


def report(
    cells: dict[str, dict[int, dict]],
    out: Path,
    conditions: Conditions,
    estimate: Estimate | None = None,
) -> None:
    """Print the tables and write all files; on a GPU with the estimate beside."""
    settings = {
        **dataclasses.asdict(conditions),
        "device": str(conditions.device),
        "threads": torch.get_num_threads(),
    }
    signed = {"settings": settings, "versions": versions()}
    result: dict = {"levels": cells}
    beside = None
    if estimate is not None and conditions.device.type == "cuda":
        result["estimate"], beside = estimate(cells, conditions)
    base.publish(out, NAME, signed, result, plot(cells))
    print()
    if beside is not None:
        print(beside.text(), end="\n\n")
    for table in tables(cells):
        print(table.text(), end="\n\n")
    print(*growth(cells), sep="\n", end="\n\n")
    if rows := goal_rows(cells):
        print(Table("Goals", ["what", "tokens", "measured", "goal", ""], rows).text())
    print(f"\nwritten: {out}/{NAME}.json, .png, .svg")


if __name__ == "__main__":
    run(main)
