"""The jobs of an experiment: a graph of commands, each of which starts when its needs are there."""

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..errors import UserError
from .progress import Progress

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """One command and the files that it makes; a job whose files are there is done."""

    name: str
    title: str
    command: tuple[str, ...]
    products: tuple[Path, ...]
    log: Path
    needs: tuple[str, ...] = ()
    weight: float = 8.0  # seconds on one core; only the ratios matter
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    # Of a training: how many updates it makes, and where fairseq logs how far it is.
    updates: int | None = None
    updates_log: Path | None = None

    def is_done(self) -> bool:
        return all(product.exists() for product in self.products)

    def shell(self) -> str:
        """The command with its variables, to be pasted."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.command)])


class Cluster(Protocol):
    """What runs jobs: this machine or SLURM."""

    slots: int  # how many jobs may run side by side, for the estimate of the time that remains

    def has_room(self, job: Job) -> bool:
        """Whether the job can be started now."""

    def start(self, job: Job) -> None:
        """Start a job; what it prints goes to its log."""

    def ended(self) -> list[tuple[Job, int]]:
        """The jobs that have ended since the last call, with their exit codes."""

    def stop(self) -> None:
        """End all jobs, with all of their processes."""


def check_graph(jobs: list[Job]) -> None:
    """Every need is a job that comes earlier, so there is no circle; no name is used twice."""
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen or not seen.issuperset(job.needs):
            raise ValueError(f"{job.name} is planned twice or before what it needs")
        seen.add(job.name)


def run_jobs(
    jobs: list[Job],
    cluster: Cluster,
    progress: Progress,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run all jobs that are not done; a failure is told at once, and the others go on."""
    check_graph(jobs)
    done = {job.name for job in jobs if job.is_done()}
    waiting = [job for job in longest_way_first(jobs) if job.name not in done]
    failed: list[Job] = []
    blocked: set[str] = set()
    progress.begin(jobs, done, cluster.slots)
    try:
        while waiting or progress.running:
            if stopped():
                raise KeyboardInterrupt
            for job in list(waiting):
                if blocked.intersection(job.needs):
                    blocked.add(job.name)
                    waiting.remove(job)
                elif done.issuperset(job.needs) and cluster.has_room(job):
                    job.log.parent.mkdir(parents=True, exist_ok=True)
                    cluster.start(job)
                    progress.started(job)
                    waiting.remove(job)
            for job, status in cluster.ended():
                if status == 0 and job.is_done():
                    done.add(job.name)
                    progress.finished(job)
                else:
                    failed.append(job)
                    blocked.add(job.name)
                    progress.failed(job, reason(job, status))
            progress.show()
            if progress.running:
                time.sleep(POLL_SECONDS)
    except BaseException:
        cluster.stop()
        raise
    finally:
        progress.end()
    if failed:
        names = ", ".join(job.title for job in failed)
        left = len(blocked) - len(failed)
        more = f" and {left} that need them were not started" if left else ""
        raise UserError(
            f"{len(failed)} of {len(jobs)} jobs failed ({names}){more}:"
            " run the same command again to go on"
        )


def longest_way_first(jobs: list[Job]) -> list[Job]:
    """In the order of what waits for them, so that no core waits at the end for a long training."""
    way = {job.name: job.weight for job in jobs}
    for job in reversed(jobs):
        for need in job.needs:
            own = next(other.weight for other in jobs if other.name == need)
            way[need] = max(way[need], own + way[job.name])
    return sorted(jobs, key=lambda job: -way[job.name])


def reason(job: Job, status: int) -> str:
    """Our own commands end with a line "error: ...", those of others with an exception."""
    try:
        lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors or (status and lines):
        return (errors or lines)[-1]
    missing = [str(product) for product in job.products if not product.exists()]
    return f"it ended with {status}" if status else f"it did not make {', '.join(missing)}"
