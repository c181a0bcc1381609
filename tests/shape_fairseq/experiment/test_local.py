"""Jobs as processes of this machine: they get what is theirs, and none outlives its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment import local
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.local import LocalCluster
from tests import processes


@pytest.fixture
def start(job, tmp_path):
    """start(cluster, "a", "sleep 1", gpus=1): the job, which runs."""
    (tmp_path / "logs").mkdir()

    def start_job(cluster, name, script="true", **options):
        made = job(name, script, **options)
        assert cluster.has_room(made)
        cluster.start(made)
        return made

    return start_job


@pytest.fixture
def cluster():
    """cluster(gpus=1, jobs=2): what runs jobs here; at the end of the test none is left."""
    made = []

    def make(gpus=0, visible="", **options):
        environment = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": visible}
        made.append(LocalCluster(Cluster(**options), environment, gpus))
        return made[-1]

    yield make
    for one in made:
        one.stop()
        if one.guard:
            one.guard.communicate()


def ends(cluster, number=1) -> dict[str, int]:
    """The exit codes of the next jobs that end, by their names."""
    ended = {}

    def enough():
        ended.update({job.name: status for job, status in cluster.ended()})
        return len(ended) >= number

    wait_until(enough)
    return ended


def test_jobs_run_side_by_side_and_a_failure_has_its_exit_code(cluster, start, job, tmp_path):
    here = cluster(jobs=2)
    meet = "touch here-{0}; until test -e here-{1}; do sleep 0.05; done"
    here_first = f"cd {tmp_path}; echo out; echo err >&2; " + meet.format("a", "b")
    first = start(here, "a", here_first)
    start(here, "b", f"cd {tmp_path}; {meet.format('b', 'a')}; exit 7")
    assert not here.has_room(job("c"))
    assert ends(here, 2) == {"a": 0, "b": 7}
    assert first.log.read_text() == "out\nerr\n" and first.is_done()
    assert here.has_room(job("c")) and here.ended() == []


def test_a_command_that_does_not_exist_takes_no_place(cluster, start, tmp_path):
    here = cluster(jobs=1)
    start(here, "a", "no-such-command")
    assert ends(here) == {"a": 127}
    start(here, "b", "kill -9 $$")
    assert ends(here) == {"b": -9}


def test_a_job_has_its_own_variables_and_an_empty_standard_input(cluster, start):
    here = cluster(jobs=1)
    one = start(here, "a", 'echo "$SEED"; cat', environment={"SEED": "7"})
    assert ends(here) == {"a": 0}
    assert one.log.read_text() == "7\n"


@pytest.mark.parametrize(("visible", "names"), [("", "012"), ("5,6,7", "567")])
def test_a_gpu_has_one_job_at_a_time(cluster, start, job, visible, names):
    here = cluster(gpus=3, visible=visible)
    first = start(here, "a", "echo $CUDA_VISIBLE_DEVICES; sleep 100", gpus=2)
    assert not here.has_room(job("b", gpus=2))
    second = start(here, "b", "echo $CUDA_VISIBLE_DEVICES", gpus=1)
    assert ends(here) == {"b": 0}
    wait_until(lambda: first.log.read_text().endswith("\n"))
    assert first.log.read_text() == f"{names[0]},{names[1]}\n"
    assert second.log.read_text() == f"{names[2]}\n"
    third = start(here, "c", "echo $CUDA_VISIBLE_DEVICES", gpus=1)
    assert ends(here) == {"c": 0} and third.log.read_text() == f"{names[2]}\n"


def test_more_gpus_than_there_are_is_one_line():
    with pytest.raises(UserError, match="cluster.gpus is 2, but this machine has 1 GPUs"):
        LocalCluster(Cluster(gpus=2), {}, 1)


def test_stop_ends_every_process_also_one_that_does_not_listen(
    cluster, start, tmp_path, monkeypatch
):
    monkeypatch.setattr(local, "SECONDS_TO_END", 0.3)
    here = cluster(jobs=2)
    polite = "trap 'touch asked; exit' TERM; sleep 100 & echo $! $$ >>pids; wait"
    deaf = "trap '' TERM; sleep 100 & echo $! $$ >>pids; wait"
    for name, script in (("a", polite), ("b", deaf)):
        start(here, name, f"cd {tmp_path}; {script}")
    wait_until(lambda: len(pids_of(tmp_path)) == 4)
    here.stop()
    assert (tmp_path / "asked").exists()
    codes = {job.name: process.returncode for job, process, _ in here.processes.values()}
    assert codes["b"] == -signal.SIGKILL
    wait_until(lambda: not any(map(is_running, pids_of(tmp_path))))


DRIVER = """
import os, sys
from pathlib import Path
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.jobs import Job, run_jobs
from shape_fairseq.experiment.local import LocalCluster
from shape_fairseq.experiment.progress import Progress
folder = Path(sys.argv[1])
script = "(sleep 100; true) & echo $! >>pids; echo $$ >>pids; wait; touch a"
job = Job("a", "Job a", ("bash", "-c", f"cd {folder}; {script}"), (folder / "a",), folder / "log")
run_jobs([job], LocalCluster(Cluster(), dict(os.environ), 0), Progress())
"""


def start_driver(folder, **options):
    """A process that runs a job with a child of its own; returns when both are there."""
    process = processes.start(sys.executable, "-c", DRIVER, folder, **options)
    wait_until(lambda: len(pids_of(folder)) == 2)
    return process


def pids_of(folder) -> list[int]:
    path = folder / "pids"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def wait_until(ready):
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_no_process_is_left_when_the_experiment_ends(tmp_path, number):
    # Tests that run in the background ignore SIGINT, and what they start would do so too.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start_driver(tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    signal.signal(signal.SIGINT, handler)
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not any(map(is_running, pids_of(tmp_path))))
    assert not (tmp_path / "a").exists()
