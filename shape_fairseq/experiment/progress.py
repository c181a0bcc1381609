"""What a person sees of running jobs: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .jobs import Job

# With what follows the number: of a line that is half written, 5 may be the beginning of 500.
NUM_UPDATES = re.compile(rb"num_updates\W+(\d+)\D")
BAR_WIDTH = 20
SECONDS_BETWEEN_SHOWS = 0.5


class Progress:
    """Tells what starts, what fails and how long it will take."""

    def __init__(self, stream: TextIO = sys.stdout):
        self.stream = stream
        self.running: dict[str, tuple[Job, float]] = {}
        self.jobs: list[Job] = []
        self.done: set[str] = set()
        # The first estimate counts as a minute's work, so that one quick job does not change all.
        self.estimated = self.spent = 60.0
        self.drawn, self.shown_at = 0, 0.0

    def begin(self, jobs: list[Job], done: set[str], slots: int) -> None:
        self.jobs, self.done, self.slots = jobs, set(done), slots
        self.numbers = {job.name: number for number, job in enumerate(jobs, start=1)}

    def started(self, job: Job) -> None:
        self.running[job.name] = (job, time.monotonic())
        number = f"[{self.numbers[job.name]}/{len(self.jobs)}]"
        self._print(f"{number} {job.title} ({self.time_left()})")

    def finished(self, job: Job) -> None:
        _, start = self.running.pop(job.name)
        self.estimated += job.weight
        self.spent += time.monotonic() - start
        self.done.add(job.name)

    def failed(self, job: Job, reason: str) -> None:
        self.running.pop(job.name)
        self._clear()
        print(
            f"error: '{job.title}' failed: {reason} (log: {job.log})", file=sys.stderr, flush=True
        )

    def time_left(self) -> str:
        """What the jobs that are left were planned with, as much longer as the others took."""
        left, longest, estimated, spent = 0.0, 0.0, self.estimated, self.spent
        parts = {}
        for name, (job, start) in self.running.items():
            parts[name] = part_done(job)
            estimated += job.weight * parts[name]
            spent += (time.monotonic() - start) if parts[name] else 0
        for job in self.jobs:
            if job.name not in self.done:
                rest = job.weight * (1 - parts.get(job.name, 0))
                left += rest
                longest = max(longest, rest)
        seconds = max(left / max(self.slots, 1), longest) * spent / estimated
        if seconds < 90:
            return f"about {max(round(seconds), 1)} s left"
        if seconds < 5400:
            return f"about {round(seconds / 60)} min left"
        return f"about {round(seconds / 3600)} h left"

    def show(self) -> None:
        """On a terminal: a line for each job that runs, drawn over the last ones."""
        if not self.stream.isatty() or time.monotonic() < self.shown_at + SECONDS_BETWEEN_SHOWS:
            return
        self.shown_at = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        lines = []
        for job, start in self.running.values():
            elapsed = int(time.monotonic() - start)
            line = f"{elapsed // 60:4}:{elapsed % 60:02}  {job.title}"
            if job.updates:
                part = part_done(job)
                bar = ("█" * round(part * BAR_WIDTH)).ljust(BAR_WIDTH, "░")
                line += f"  {bar} {round(part * job.updates)}/{job.updates} updates"
            lines.append(line[:width])
        lines.append(f"{len(self.done)} of {len(self.jobs)} done, {self.time_left()}"[:width])
        self._clear()
        self.stream.write("\n".join(lines))
        self.stream.flush()
        self.drawn = len(lines)

    def end(self) -> None:
        self._clear()

    def _print(self, line: str) -> None:
        self._clear()
        print(line, file=self.stream, flush=True)

    def _clear(self) -> None:
        if self.drawn:
            self.stream.write("\r\033[K" + "\033[A\033[K" * (self.drawn - 1))
            self.stream.flush()
            self.drawn = 0


def part_done(job: Job) -> float:
    """How far a training is, from the end of its log; 0 for what has none."""
    if not job.updates or not job.updates_log:
        return 0.0
    try:
        with open(job.updates_log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            numbers = NUM_UPDATES.findall(file.read())
    except OSError:
        return 0.0
    return min(int(numbers[-1]) / job.updates, 1.0) if numbers else 0.0
