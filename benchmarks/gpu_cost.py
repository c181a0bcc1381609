"""What a training step costs on a GPU, counted without one: launches, FLOPs, bytes, an estimate.

The operations of a step of transformer-base in fp16, forward and backward, are counted on tensors
that have shapes and no numbers. An operation then takes as long as its arithmetic, its memory
traffic or its launch, what is longest, at a GPU's peak: a roofline. **This is an estimate, not a
measurement**: no kernel reaches the peaks, and real launches overlap. It tells what can be won, and
compares implementations under the same assumptions. `make bench` on a GPU measures.

    python -m benchmarks.gpu_cost                # the tables
    python -m benchmarks.gpu_cost --resources    # registers and shared memory of the kernels
"""

import dataclasses
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks import speed
from shape_fairseq.command_line import Parser
from shape_fairseq.errors import run
from shape_fairseq.evaluation.table import Table
from shape_fairseq.modules import blockwise_attention, fused_attention, relative_attention
from shape_fairseq.modules.fused_attention import KERNELS, choose_tiles, columns_of

LENGTHS = (27, 270, 1024)
FUSED, BLOCKWISE = "fused", "blockwise"
MODELS = {
    "ape": "APE",
    FUSED: "RPE, fused",
    BLOCKWISE: "RPE, blockwise",
    speed.LOOKUP: "RPE, T×T×d",
}
GOAL = 0.95  # of APE's training step
LAUNCH_SECONDS = 5e-6  # what eager PyTorch needs to launch a kernel; --launch changes it
DTYPE = torch.float16


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Peaks of a GPU, dense, from its maker's data sheet."""

    name: str
    capability: int
    half_flops: float  # tensor cores, fp16
    single_flops: float
    bandwidth: float  # bytes a second


GPUS = (
    # NVIDIA V100 data sheet (January 2020), SXM2: 125 and 15.7 TFLOPS, 900 GB/s
    Gpu("V100", 70, 125e12, 15.7e12, 900e9),
    # NVIDIA A100 data sheet (June 2021), SXM 80 GB: 312 and 19.5 TFLOPS, 2,039 GB/s
    Gpu("A100", 80, 312e12, 19.5e12, 2039e9),
    # NVIDIA H100 data sheet (2023), SXM: 1,979 with sparsity, half of it without; 67; 3.35 TB/s
    Gpu("H100", 90, 989.5e12, 67e12, 3350e9),
)


@dataclasses.dataclass
class Operation:
    """Something that is one kernel on a GPU."""

    name: str
    flops: float
    bytes: float
    triton: bool = False
    older: "Operation | None" = None  # the same where Triton has no tensor cores: other tiles

    def seconds(self, gpu: Gpu, launch: float) -> float:
        """At the peak of what limits it."""
        newer = fused_attention.has_tensor_cores(gpu.capability)
        if not newer and self.older is not None:
            return self.older.seconds(gpu, launch)
        peak = gpu.half_flops if newer or not self.triton else gpu.single_flops
        return max(launch, self.flops / peak, self.bytes / gpu.bandwidth)


# They make views or memory, no kernel.
FREE = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "alias"}
FREE |= {"_unsafe_view", "lift_fresh", "_local_scalar_dense", "resize_", "set_"}


def size(tensor: Tensor) -> int:
    """Bytes in a training in fp16, whatever the precision of the tensor that is counted."""
    width = DTYPE.itemsize if tensor.is_floating_point() else tensor.element_size()
    return tensor.numel() * width


def attention_flops(query: Tensor, key: Tensor, products: int) -> float:
    """FLOPs of matrix products of the scores' size."""
    return products * 2.0 * query.shape[:-1].numel() * key.size(-2) * query.size(-1)


class Counter(TorchDispatchMode):
    """Writes down all operations that are kernels on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or name in FREE or name.startswith("prim::"):
            return result
        tensors = {
            id(leaf): leaf
            for leaf in tree_leaves((args, kwargs, result))
            if isinstance(leaf, Tensor) and leaf.numel() > 0
        }
        flops = 0.0
        if name == "_scaled_dot_product_flash_attention_for_cpu":
            flops = attention_flops(args[0], args[1], products=2)
        elif name == "_scaled_dot_product_flash_attention_for_cpu_backward":
            flops = attention_flops(args[1], args[2], products=5)
        else:
            packet = getattr(torch.ops.aten, name.removesuffix("_"), None)  # baddbmm_ as baddbmm
            if packet in flop_registry:
                flops = flop_registry[packet](*args, **(kwargs or {}), out_val=result)
        moved = sum(map(size, tensors.values()))
        self.operations.append(Operation(name, flops, moved))
        return result


def fused_operations(
    query: Tensor, key: Tensor, distances: int, capability: int
) -> dict[str, Operation]:
    """Arithmetic and traffic of each Triton kernel, whole tiles counted."""
    sequences, queries, width = query.shape
    keys, columns = key.size(1), columns_of(distances)
    tiles = choose_tiles(width, distances, DTYPE, capability)
    rows, vectors = size(query), sequences * queries * 4
    tables = 2 * distances * width * DTYPE.itemsize
    both = 2 * size(key)  # keys and values
    blocks = -(-queries // tiles["query_gradient"].queries)
    partial_sums = sequences * blocks * 2 * distances * width * 4

    def flops(name: str, products: int, table_products: float) -> float:
        tile = tiles[name]
        tall = -(-queries // tile.queries) * tile.queries
        wide = -(-keys // tile.keys) * tile.keys
        return 2.0 * sequences * tall * width * (products * wide + table_products * columns)

    # The key kernel multiplies with the tables anew in every near tile.
    tile = tiles["key_gradient"]
    near = min(-(-queries // tile.queries), 1 + (tile.keys + distances) // tile.queries)
    repeated = near * -(-keys // tile.keys) / -(-queries // tile.queries)
    return {
        "forward": Operation(
            "forward_kernel", flops("forward", 2, 2), 2 * rows + both + vectors + tables, True
        ),
        "query_gradient": Operation(
            "query_gradient_kernel",
            flops("query_gradient", 3, 5),
            4 * rows + both + 2 * vectors + tables + partial_sums,
            True,
        ),
        "key_gradient": Operation(
            "key_gradient_kernel",
            flops("key_gradient", 4, 2 * repeated),
            2 * rows + 2 * both + 2 * vectors + tables,
            True,
        ),
        "sum": Operation("sum", 0, partial_sums + 2 * tables),
    }


class CountedFusedAttention(torch.autograd.Function):
    """Stands for the Triton kernels, which do not run on tensors without numbers."""

    @staticmethod
    def forward(ctx, query, key, value, relative_keys, relative_values, counter: Counter):
        ctx.counter = counter
        ctx.save_for_backward(query, key, value, relative_keys, relative_values)
        older, ctx.kernels = (
            fused_operations(query, key, relative_keys.size(0), capability)
            for capability in (70, 80)
        )
        for name, kernel in ctx.kernels.items():
            kernel.older = older[name]
        counter.operations.append(ctx.kernels["forward"])
        return torch.empty_like(query)

    @staticmethod
    def backward(ctx, grad_output):
        for name in ("query_gradient", "key_gradient", "sum"):
            ctx.counter.operations.append(ctx.kernels[name])
        return (*map(torch.empty_like, ctx.saved_tensors), None)


@contextmanager
def implementation(model: str, counter: Counter) -> Iterator[None]:
    """Relative attention computed one way or the other, as on a GPU."""

    def fused(query, key, value, relative_keys, relative_values, *_):
        return CountedFusedAttention.apply(
            *(query, key, value, relative_keys, relative_values, counter)
        )

    limits = patch.object(blockwise_attention, "CPU_LIMITS", blockwise_attention.GPU_LIMITS)
    choice = patch.object(relative_attention, "use_fused", lambda *_: model == FUSED)
    kernel = patch.object(relative_attention, "fused_relative_attention", fused)
    with limits, choice, kernel, without_numbers():
        yield


@contextmanager
def without_numbers() -> Iterator[None]:
    """What modules, fairseq and the optimizer ask of numbers is answered without them."""
    with ExitStack() as stack:
        for owner, name, answer in (
            (torch.nn.Module, "to", lambda module, *_: module),
            (torch.onnx.operators, "shape_as_tensor", lambda tensor: tuple(tensor.shape)),
            (Tensor, "__bool__", lambda _: False),  # nothing is padded
            (Tensor, "item", lambda _: 1),
            (torch.optim.Adam, "step", lambda _: None),  # the same for all models
        ):
            stack.enter_context(patch.object(owner, name, answer))
        yield


def count(model: str, steps: Callable, length: int, tokens: int, size: str) -> list[Operation]:
    """The operations of one step."""
    name = model if model in speed.TITLES else "rpe"
    conditions = speed.Conditions(size, 32_768, tokens, torch.device("cpu"))
    counter = Counter()
    with FakeTensorMode(allow_non_fake_inputs=True), implementation(model, counter):
        step = steps((name,), length, conditions)[name]
        with counter:
            step(0)
    return counter.operations


LEVELS = {
    "attention": ("one self-attention, forward and backward", speed.attention_steps(False)),
    "training": ("training step without the update", speed.training_steps),
}


def estimate(operations: list[Operation], gpu: Gpu, launch: float) -> float:
    """Seconds, one operation after the other."""
    return sum(operation.seconds(gpu, launch) for operation in operations)


def summarize(
    tokens: int, launch: float, lengths: tuple[int, ...] = LENGTHS, size: str = "_wmt_en_de"
) -> dict:
    """Launches, FLOPs, bytes and estimated seconds: level, length, model."""
    result: dict = {}
    for level, (_, steps) in LEVELS.items():
        for length in lengths:
            for model in MODELS:
                operations = count(model, steps, length, tokens, size)
                result.setdefault(level, {}).setdefault(length, {})[model] = {
                    "launches": len(operations),
                    "gflops": sum(operation.flops for operation in operations) / 1e9,
                    "gigabytes": sum(operation.bytes for operation in operations) / 1e9,
                    "seconds": {gpu.name: estimate(operations, gpu, launch) for gpu in GPUS},
                }
    return result


def tables(result: dict) -> Iterator[Table]:
    """One table for each level."""
    for level, by_length in result.items():
        header = ["tokens", "model", "launches", "GFLOP", "GB"]
        header += [f"{gpu.name}, ms (speed / APE)" for gpu in GPUS]
        rows = []
        for length, cell in by_length.items():
            for model, cost in cell.items():
                times = [
                    f"{1000 * seconds:.2f} ({cell['ape']['seconds'][gpu] / seconds:.2f})"
                    for gpu, seconds in cost["seconds"].items()
                ]
                numbers = [str(cost["launches"]), f"{cost['gflops']:,.0f}"]
                numbers.append(f"{cost['gigabytes']:,.2f}")
                rows.append([str(length), MODELS[model], *numbers, *times])
        yield Table(f"Estimate: {LEVELS[level][0]}", header, rows)


def beside(measured: dict[str, dict[int, dict]], estimated: dict, gpu: Gpu) -> Table:
    """What `benchmarks.speed` measured on this GPU, and what was estimated for it."""
    rows = [
        [LEVELS[level][0], str(length)]
        + [f"{cell['rpe']['speed']:.2f}"]
        + [
            f"{cells['ape']['seconds'][gpu.name] / cells[model]['seconds'][gpu.name]:.2f}"
            for model in (FUSED, BLOCKWISE)
        ]
        for level, by_length in estimated.items()
        for length, cells in by_length.items()
        if "rpe" in (cell := measured.get(level, {}).get(length, {}))
    ]
    header = ["what", "tokens", "RPE / APE, measured"]
    header += [f"{MODELS[model]}, estimate for {gpu.name}" for model in (FUSED, BLOCKWISE)]
    return Table("Measured and estimated speed of RPE", header, rows)


def estimate_beside(
    measured: dict[str, dict[int, dict]], conditions: speed.Conditions
) -> tuple[dict, Table]:
    """The estimate for what `benchmarks.speed` measured, and both in one table."""
    lengths = tuple(sorted({length for by_length in measured.values() for length in by_length}))
    estimated = summarize(conditions.tokens, LAUNCH_SECONDS, lengths, conditions.size)
    gpu = nearest_gpu(fused_attention.capability_of(conditions.device))
    return estimated, beside(measured, estimated, gpu)


def nearest_gpu(capability: int) -> Gpu:
    """The newest GPU of the table that is not newer than this architecture."""
    return max((gpu for gpu in GPUS if gpu.capability <= capability), default=GPUS[0], key=newness)


def newness(gpu: Gpu) -> int:
    return gpu.capability


def missed_goals(result: dict) -> list[str]:
    """Where the fused kernels stay below the goal by this estimate."""
    missed = []
    for length, cell in result["training"].items():
        for gpu, seconds in cell[FUSED]["seconds"].items():
            ratio = cell["ape"]["seconds"][gpu] / seconds
            if ratio < GOAL:
                missed.append(f"{gpu}, {length} tokens: {ratio:.2f} of APE, goal {GOAL}")
    for length, cell in result["attention"].items():
        launches, theirs = cell[FUSED]["launches"], cell["ape"]["launches"]
        if launches > theirs:
            missed.append(f"{length} tokens: {launches} launches in attention, APE {theirs}")
    return missed


DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
TRITON_TYPES = {dtype: name for name, dtype in DTYPES.items()}
INTEGERS = {"query_count", "key_count", "heads", "distances", "seed", "threshold"}
NUMBERS = {"scale", "factor", "keep_factor"}
SINGLE = {"log_sums", "deltas", "table_sums"}


def kernel_signature(names: list[str], constants: dict, dtype: torch.dtype) -> tuple[dict, dict]:
    """The types of a kernel's arguments, and which are multiples of 16."""
    types, aligned = {}, {}
    for index, name in enumerate(names):
        if name in constants:
            types[name] = "constexpr"
        elif name in INTEGERS:
            types[name] = "i32"
        elif name in NUMBERS:
            types[name] = "fp32"
        else:
            kind = "fp32" if name in SINGLE else TRITON_TYPES[dtype]
            pointer = "*u8" if name == "padding" else f"*{kind}"
            types[name] = "i32" if "_stride_" in name else pointer
            aligned[(index,)] = [["tt.divisibility", 16]]
    return types, aligned


def resources(
    name: str, capability: int, dtype: torch.dtype = DTYPE, width: int = 64, max_distance: int = 16
) -> dict[str, int]:
    """Compile a kernel for an architecture, without a GPU, and read what it needs off its code."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    distances = 2 * max_distance + 1
    tiles = choose_tiles(width, distances, dtype, capability)
    launch = fused_attention.Launch(1.0, False, 0.1, 0, 8, tiles)
    constants = fused_attention.kernel_options(
        launch, name, torch.empty(0, 0, width), distances, padded=True
    )
    options = {option: constants.pop(option) for option in ("num_warps", "num_stages")}
    kernel = getattr(fused_attention.load_kernels(), f"{name}_kernel")
    types, aligned = kernel_signature(kernel.arg_names, constants, dtype)
    source = ASTSource(kernel, types, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return {
        "registers": numbers["REG"],
        "spilled_bytes": numbers["STACK"] + numbers["LOCAL"],
        "shared_bytes": compiled.metadata.shared,
        "tensor_core_instructions": len(re.findall(r"mma", compiled.asm["ptx"])),
    }


def main(arguments: list[str] | None = None) -> None:
    """Count what a training step of APE and RPE costs on a GPU, and estimate its time."""
    parser = Parser(
        prog="python -m benchmarks.gpu_cost",
        description=main.__doc__,
        example="--tokens 4096",
    )
    parser.add_argument("--tokens", type=int, default=4096, help="in a batch")
    parser.add_argument(
        "--launch",
        type=float,
        default=LAUNCH_SECONDS,
        metavar="SECONDS",
        help="that a kernel takes at least (default: %(default)s)",
    )
    parser.add_argument("--resources", action="store_true", help="compile the kernels and say so")
    parser.add_argument("--capabilities", type=int, nargs="+", default=[70, 75, 80, 90])
    parser.add_argument("--dtype", choices=DTYPES, default="fp16", help="default: %(default)s")
    parser.add_argument("--width", type=int, default=64, help="of a head (default: %(default)s)")
    parser.add_argument("--max-relative-distance", type=int, default=16, metavar="L")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    if args.resources:
        dtype, width, max_distance = DTYPES[args.dtype], args.width, args.max_relative_distance
        for capability, name in product(args.capabilities, KERNELS):
            needs = resources(name, capability, dtype, width, max_distance)
            print(json.dumps({"kernel": name, "capability": capability, **needs}), flush=True)
        return
    result = summarize(args.tokens, args.launch)
    if args.json:
        print(json.dumps(result))
        return
    for table in tables(result):
        print(table.text(), end="\n\n")
    print("An estimate from peaks, not a measurement; fp16, see the head of this file.")
    for line in missed_goals(result) or ["All goals are met by this estimate."]:
        print(line)


if __name__ == "__main__":
    run(main)
