"""The same recipe on the nodes of a SLURM cluster, which may be two slurmd on one machine."""

import os
import shutil
import subprocess

import pytest


def nodes() -> int:
    """How many nodes the cluster of this machine has ready."""
    if not shutil.which("sbatch"):
        return 0
    states = subprocess.run(["sinfo", "-hNo", "%N %T"], capture_output=True, text=True).stdout
    return states.count(" idle")


def test_a_job_trains_on_all_its_nodes(recipes, demo, tmp_path):
    count = min(nodes(), 2)
    if not count:
        pytest.skip("no SLURM here: sbatch is missing, or sinfo shows no idle node")
    save, log = tmp_path / "save", tmp_path / "job.log"
    size = {"ARCH_SIZE": "tiny", "GPUS": 0, "BATCH_TOKENS": 1000 * count, "MAX_TOKENS": 1000}
    steps = {"UPDATES": 2, "SAVE_EVERY": 1, "EXTRA": "--disable-validation --num-workers 0"}
    cluster = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
    job = ["sbatch", "--wait", "--nodes", count, "--cpus-per-task", 1, "--output", log]
    recipes.command(
        *(*job, "recipes/slurm.sbatch", "vanilla", "shape"),
        **{"DATA": demo, "SAVE": save, **size, **steps, **cluster},
    )
    assert f"training on {count} devices" in log.read_text()
    assert (save / "completed_updates.txt").read_text() == "2\n"


def test_a_job_without_a_model_ends_with_one_line(recipes):
    script = recipes.top / "recipes" / "slurm.sbatch"
    result = subprocess.run(["bash", script, "vanilla"], capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
