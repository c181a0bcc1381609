"""Jobs on this machine: one for each core, or for each share of the GPUs."""

import os
import signal
import subprocess
import sys
import time

from ..errors import UserError
from ..parallel import available_cores
from .description import Cluster as Options
from .jobs import Job

# It outlives this process, whatever ends it, and then ends the jobs whose groups it was told.
GUARD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
SECONDS_TO_END = 10


class LocalCluster:
    """Starts jobs as processes, each in a group of its own, so that a stop reaches all of it."""

    def __init__(self, options: Options, environment: dict[str, str], gpus: int):
        self.environment = environment
        visible = environment.get("CUDA_VISIBLE_DEVICES", "")
        self.free_gpus = visible.split(",")[:gpus] if visible else [str(n) for n in range(gpus)]
        self.slots = options.jobs or gpus or available_cores()
        if (options.gpus or 0) > gpus:
            raise UserError(f"cluster.gpus is {options.gpus}, but this machine has {gpus} GPUs")
        self.processes: dict[int, tuple[Job, subprocess.Popen, list[str]]] = {}
        self.guard: subprocess.Popen | None = None

    def has_room(self, job: Job) -> bool:
        return len(self.processes) < self.slots and job.gpus <= len(self.free_gpus)

    def start(self, job: Job) -> None:
        pipe = self._guard_pipe()
        taken = [self.free_gpus.pop(0) for _ in range(job.gpus)]
        environment = self.environment | dict(job.environment)
        if taken:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(taken)
        with open(job.log, "wb") as log:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                # In the new process, so that no kill can come between its start and this note.
                preexec_fn=lambda: os.write(pipe, b"+%d\n" % os.getpid()),
            )
        self.processes[process.pid] = (job, process, taken)

    def _guard_pipe(self) -> int:
        """Where the guard, which is started when it is needed, is told of groups."""
        if self.guard is None:
            command = [sys.executable, "-c", GUARD]
            self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self.guard.stdin is not None  # because of PIPE
        return self.guard.stdin.fileno()

    def ended(self) -> list[tuple[Job, int]]:
        ended = []
        for pid, (job, process, taken) in list(self.processes.items()):
            if process.poll() is not None:
                del self.processes[pid]
                self.free_gpus += taken
                os.write(self._guard_pipe(), b"-%d\n" % pid)
                ended.append((job, process.returncode))
        return ended

    def stop(self) -> None:
        """Ask all processes to end, then make them."""
        end = time.monotonic() + SECONDS_TO_END
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes:
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:
                    continue
            while number == signal.SIGTERM and time.monotonic() < end:
                if all(process.poll() is not None for _, process, _ in self.processes.values()):
                    break
                time.sleep(0.05)
        for _, process, _ in self.processes.values():
            process.wait()
