"""What runs on a node, without SLURM; tests/recipes/test_slurm.py has a real cluster."""

import signal
import threading
import time
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment import slurm
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.slurm import JobProcess, SlurmCluster

submitit = pytest.importorskip("submitit")


@pytest.fixture
def process(tmp_path):
    """process("echo a"): a job's command as it runs on a node."""

    def make(script, **environment):
        return JobProcess(("bash", "-c", script), environment, str(tmp_path / "log"))

    return make


def test_a_job_runs_again_into_the_same_log_and_tells_its_exit_code(process, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("HERE", "1")
    run = process('echo "$SLURM_NTASKS $HERE $SEED"; echo no >&2; exit 3', SEED="7")
    assert run() == 3 and run() == 3
    # fairseq would start ranks if it saw SLURM's variables.
    assert (tmp_path / "log").read_text() == " 1 7\nno\n" * 2


def test_a_job_that_gives_way_ends_with_its_children_and_is_submitted_again(
    process, tmp_path, monkeypatch
):
    monkeypatch.setattr(slurm, "SECONDS_OF_WARNING", 1.5)
    run = process(
        f"trap '' TERM; sleep 100 & echo $! >{tmp_path}/pid.new; "
        f"mv {tmp_path}/pid.new {tmp_path}/pid; wait; wait"
    )
    thread = threading.Thread(target=run)
    thread.start()
    pid_file = tmp_path / "pid"
    end = time.monotonic() + 60
    while not pid_file.exists() and time.monotonic() < end:
        time.sleep(0.02)
    again = run.checkpoint()
    thread.join(60)
    assert not thread.is_alive() and run.process.returncode == -signal.SIGKILL
    child = Path(f"/proc/{int(pid_file.read_text())}/stat")
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert isinstance(again, submitit.helpers.DelayedSubmission)
    assert again.function.command == run.command and again.function.process is None


def test_a_job_that_has_not_begun_gives_way_at_once(process):
    assert process("true").checkpoint().function.command == ("bash", "-c", "true")


def test_a_machine_without_slurm_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="--cluster slurm: this machine has no sbatch"):
        SlurmCluster(Cluster(kind="slurm", gpus=0), {}, tmp_path)
