"""Jobs run for real, as processes of this machine: in order, told, stopped and gone on with."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.jobs import Job, check_graph, longest_way_first, run_jobs
from shape_fairseq.experiment.local import LocalCluster
from shape_fairseq.experiment.progress import Progress, part_done

TOP = Path(__file__).parents[3]


@pytest.fixture
def job(tmp_path):
    """job("b", "sleep 1", needs=["a"]): a shell command that makes the file b if it succeeds."""

    def make(name, script="true", needs=(), **options):
        product = tmp_path / name
        command = ("bash", "-c", f"{script} && touch {product}")
        log = tmp_path / "logs" / f"{name}.log"
        return Job(name, f"Job {name}", command, (product,), log, tuple(needs), **options)

    return make


def run(jobs, slots=2):
    """What was printed while the jobs ran."""
    output = io.StringIO()
    run_jobs(jobs, LocalCluster(Cluster(jobs=slots), dict(os.environ), 0), Progress(output))
    return output.getvalue().splitlines()


def test_each_job_starts_when_what_it_needs_is_there(job, tmp_path):
    order = tmp_path / "order"
    jobs = [
        # c starts beside a, although a comes first.
        job("a", f"until test -e {tmp_path}/c; do sleep 0.05; done; echo a >>{order}"),
        job("b", f"test -e {tmp_path}/a; echo b >>{order}", ["a"]),
        job("c", f"echo c >>{order}"),
        job("d", f"test -e {tmp_path}/b && test -e {tmp_path}/c; echo d >>{order}", ["b", "c"]),
    ]
    lines = run(jobs)
    assert order.read_text().split() == ["c", "a", "b", "d"]
    assert re.fullmatch(r"\[1/4\] Job a \(about \d+ s left\)", lines[0])
    assert len(lines) == 4
    assert run(jobs) == []


def test_the_longest_way_comes_first_and_circles_are_refused(job):
    jobs = [job("a", weight=5), job("b", weight=1), job("c", needs=["b"], weight=10)]
    assert [job.name for job in longest_way_first(jobs)] == ["b", "c", "a"]
    for wrong in ([job("a", needs=["b"]), job("b")], [job("a"), job("a")]):
        with pytest.raises(ValueError, match="planned twice or before"):
            check_graph(wrong)


def test_a_failure_is_told_at_once_and_the_others_finish(job, tmp_path, capsys):
    jobs = [
        job("bad", "echo 'error: no such luck'; false"),
        job("blocked", needs=["bad"]),
        job("last", needs=["blocked"]),
        job("good", "sleep 0.6"),
        job("after", needs=["good"]),
    ]
    with pytest.raises(UserError, match=r"1 of 5 jobs failed \(Job bad\) and 2 that need them"):
        run(jobs)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: 'Job bad' failed: no such luck (log: {tmp_path}/logs/bad.log)"
    assert jobs[4].is_done() and not jobs[1].is_done()


def test_a_job_that_makes_nothing_has_failed(tmp_path, capsys):
    lazy = Job("lazy", "Lazy", ("true",), (tmp_path / "product",), tmp_path / "lazy.log")
    with pytest.raises(UserError, match="1 of 1 jobs failed"):
        run([lazy])
    assert f"it did not make {tmp_path}/product" in capsys.readouterr().err


DRIVER = """
import os, sys
from pathlib import Path
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.jobs import Job, run_jobs
from shape_fairseq.experiment.local import LocalCluster
from shape_fairseq.experiment.progress import Progress
folder = Path(sys.argv[1])
script = "(sleep 100; true) & echo $! >>pids; echo $$ >>pids; wait; touch a"
job = Job("a", "Job a", ("bash", "-c", f"cd {folder}; {script}"), (folder / "a",), folder / "log",
          updates=10, updates_log=folder / "train.log")
run_jobs([job], LocalCluster(Cluster(), dict(os.environ), 0), Progress())
"""


def start_driver(folder, **options):
    """A process that runs a job with a child of its own; returns when both are there."""
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    command = [sys.executable, "-c", DRIVER, str(folder)]
    process = subprocess.Popen(command, env=environment, **options)
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


def test_a_terminal_shows_how_far_a_training_is(tmp_path):
    (tmp_path / "train.log").write_text("| train_inner | epoch 001: num_updates=4, lr=0.1\n")
    ours, theirs = pty.openpty()
    process = start_driver(tmp_path, stdout=theirs, stderr=theirs)
    shown = b""
    while b"done" not in shown:
        shown += os.read(ours, 4096)
    process.kill()
    process.wait()
    text = shown.decode()
    assert "Job a  ████████░░░░░░░░░░░░ 4/10 updates" in text
    assert re.search(r"0 of 1 done, about \d+ s left", text)


@pytest.mark.parametrize(
    "line", ["num_updates=5, lr=1", "| num_updates 5 | lr", '{"num_updates": "5"}']
)
def test_the_updates_are_read_from_every_format_of_the_log(job, tmp_path, line):
    log = tmp_path / "train.log"
    log.write_text(f"num_updates=1\n{line}\n")
    assert part_done(job("a", updates=10, updates_log=log)) == 0.5
    assert part_done(job("a", updates=10, updates_log=tmp_path / "none")) == 0
