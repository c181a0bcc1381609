"""Jobs run for real, as processes of this machine: in order, told and gone on with."""

import io
import os
import re

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import Cluster
from shape_fairseq.experiment.jobs import Job, check_graph, longest_way_first, run_jobs
from shape_fairseq.experiment.local import LocalCluster
from shape_fairseq.experiment.progress import Progress


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
