import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from benchmarks import gpu_cost
from shape_fairseq.modules.fused_attention import has_tensor_cores
from tests.processes import REPOSITORY

pytestmark = pytest.mark.slow
SHARED_MEMORY = {70: 96, 75: 64, 80: 163, 90: 227}  # KiB that a thread block may have


@pytest.fixture(scope="module")
def result():
    return gpu_cost.summarize(1080, 5e-6, lengths=(27, 270))


def test_the_fused_kernels_need_no_more_launches_than_fairseqs_attention(result):
    for cell in result["attention"].values():
        assert cell["fused"]["launches"] <= cell["ape"]["launches"] < cell["blockwise"]["launches"]


def test_arithmetic_is_counted_whatever_the_implementation(result):
    # Four projections; the backward pass has twice the products of the forward pass.
    projections = 3 * 4 * 2 * 1080 * 512 * 512 / 1e9
    for length, cell in result["attention"].items():
        products = 2 * 8 * 1080 * length * 64 / 1e9  # of scores, all heads
        for model in ("ape", "lookup", "blockwise", "fused"):
            extra = cell[model]["gflops"] - projections
            assert 6 * products < extra < 60 * products, (model, length)


def test_the_estimate_reaches_the_goal_on_gpus_with_tensor_cores_for_triton(result):
    missed = gpu_cost.missed_goals(result)
    assert all(line.startswith("V100") for line in missed), missed
    text = "\n".join(table.text() for table in gpu_cost.tables(result))
    assert "Estimate" in text and "RPE, fused" in text


def test_measured_and_estimated_speeds_stand_side_by_side(result):
    measured = {"training": {27: {"ape": {"speed": 1.0}, "rpe": {"speed": 0.87}}}}
    table = gpu_cost.beside(measured, result, gpu_cost.nearest_gpu(86))
    assert len(table.rows) == 1 and table.rows[0][1:3] == ["27", "0.87"]
    assert table.header[3:] == [
        "RPE, fused, estimate for A100",
        "RPE, blockwise, estimate for A100",
    ]
    fused, blockwise = map(float, table.rows[0][3:])
    assert blockwise < fused
    assert gpu_cost.nearest_gpu(120).name == "H100" and gpu_cost.nearest_gpu(61).name == "V100"


def test_an_operation_takes_what_limits_it():
    gpu = gpu_cost.Gpu("some", 70, half_flops=100.0, single_flops=10.0, bandwidth=10.0)
    assert gpu_cost.Operation("", flops=100, bytes=1).seconds(gpu, 0.5) == 1
    assert gpu_cost.Operation("", flops=100, bytes=20).seconds(gpu, 0.5) == 2
    assert gpu_cost.Operation("", flops=1, bytes=1).seconds(gpu, 0.5) == 0.5
    # Triton has no tensor cores before sm_80, and other tiles there.
    older = gpu_cost.Operation("", flops=80, bytes=1, triton=True)
    newer = gpu_cost.Operation("", flops=100, bytes=1, triton=True, older=older)
    assert newer.seconds(gpu, 0.5) == 8
    assert newer.seconds(dataclasses.replace(gpu, capability=80), 0.5) == 1


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(
    ("dtype", "max_distance", "capabilities"),
    [
        ("fp16", 16, [70, 75, 80, 90]),
        ("fp32", 16, [70, 75, 80, 90]),
        ("bf16", 16, [80, 90]),  # older GPUs do not have it
        ("fp16", 64, [80, 90]),  # on older ones `auto` stays with blockwise
    ],
)
def test_the_kernels_compile_for_all_architectures_without_spills(
    dtype, max_distance, capabilities
):
    """In a process of its own: Triton compiles only where it does not interpret."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "benchmarks.gpu_cost", "--resources", "--dtype", dtype]
    command += ["--max-relative-distance", str(max_distance)]
    command += ["--capabilities", *map(str, capabilities)]
    printed = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    kernels = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(kernels) == len(capabilities) * 3
    for kernel in kernels:
        assert kernel["shared_bytes"] <= SHARED_MEMORY[kernel["capability"]] * 1024, kernel
        assert kernel["spilled_bytes"] == 0 and kernel["registers"] <= 255, kernel
        tensor_cores = has_tensor_cores(kernel["capability"]) and dtype != "fp32"
        assert (kernel["tensor_core_instructions"] > 0) == tensor_cores, kernel
