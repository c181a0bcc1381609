"""Jobs on a SLURM cluster, through submitit; what is preempted or out of time is requeued."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from ..errors import UserError
from .description import Cluster as Options
from .jobs import Job

# So often may a training run out of time, or be asked to end, and go on.
RESTARTS = 100
# How long a job has to end between SLURM's warning and the end of its time.
SECONDS_OF_WARNING = 90
SECONDS_BETWEEN_QUERIES = 2.0
# A result may reach the disk of this machine after the job has left the queue.
SECONDS_WITHOUT_RESULT = 15.0
ASKED_TO_END = {
    status
    for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGCONT)
    for status in (-number, 128 + number)
}


class JobProcess:
    """What submitit runs on a node: the job's command; a requeued one resumes by running again."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], log: str):
        self.command, self.environment, self.log = command, environment, log
        self.process: subprocess.Popen | None = None

    def __call__(self) -> int:
        # From SLURM's variables fairseq would conclude that it shall start ranks through them.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=kept | self.environment,
                start_new_session=True,
            )
        # wait() would hold a lock that checkpoint(), called by a signal, needs.
        while self.process.poll() is None:
            time.sleep(0.2)
        return self.process.returncode

    def checkpoint(self):
        """submitit calls this when the job is to give way: end it here, run it again later."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self.process.pid, number)
                    self.process.wait(SECONDS_OF_WARNING / 3)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        return DelayedSubmission(JobProcess(self.command, self.environment, self.log))


class SlurmCluster:
    """Submits each job when what it needs is there, and finds jobs that run already."""

    def __init__(self, options: Options, environment: dict[str, str], out: Path):
        try:
            import submitit
        except ModuleNotFoundError:
            raise UserError("--cluster slurm needs submitit: pip install submitit") from None
        for command in ("sbatch", "squeue", "scancel", "scontrol"):
            if not shutil.which(command):
                raise UserError(f"--cluster slurm: this machine has no {command}")
        self.submitit, self.options, self.environment = submitit, options, environment
        self.folder = out / "logs" / "slurm"
        self.slots = options.jobs or 1000
        self.jobs: dict[str, tuple[Job, Any]] = {}
        self.restarts: dict[str, int] = {}
        self.left_at: dict[str, float] = {}
        self.states: dict[str, str] = {}
        self.asked_at = float("-inf")

    def has_room(self, job: Job) -> bool:
        return len(self.jobs) < self.slots

    def start(self, job: Job) -> None:
        note = self.folder / f"{job.name}.job"
        if note.exists() and (number := note.read_text(encoding="utf-8").strip()) in self._queue():
            # Submitted by a run of this experiment that was killed.
            self.jobs[job.name] = (job, self.submitit.SlurmJob(self.folder, number))
            return
        job.log.write_bytes(b"")
        self._submit(job)

    def _submit(self, job: Job) -> None:
        options = self.options
        executor = self.submitit.SlurmExecutor(self.folder, max_num_timeout=RESTARTS)
        parameters = {
            "job_name": job.name,
            "time": max(1, round(options.hours * 60)),
            "cpus_per_task": options.cpus,
            "ntasks_per_node": 1,
            "signal_delay_s": SECONDS_OF_WARNING,
            "stderr_to_stdout": True,
            "setup": [
                f"export PYTHONPATH={shlex.quote(self.environment['PYTHONPATH'])}",
                # From SLURM 22.05 on srun does not take this over from sbatch.
                f"export SRUN_CPUS_PER_TASK={options.cpus}",
            ],
            "additional_parameters": {"requeue": True},
        }
        parameters |= {"gpus_per_node": job.gpus} if job.gpus else {}
        parameters |= {"partition": options.partition} if options.partition else {}
        parameters |= {"constraint": options.constraint} if options.constraint else {}
        executor.update_parameters(**parameters)
        process = JobProcess(job.command, self.environment | dict(job.environment), str(job.log))
        try:
            submitted = executor.submit(process)
        except self.submitit.core.utils.FailedJobError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise UserError(f"sbatch refused {job.name}: {lines[-1]}") from error
        note = self.folder / f"{job.name}.job"
        note.write_text(f"{submitted.job_id}\n", encoding="utf-8")
        self.jobs[job.name] = (job, submitted)
        self.states[submitted.job_id] = "PENDING"

    def ended(self) -> list[tuple[Job, int]]:
        ended = []
        for name, (job, submitted) in list(self.jobs.items()):
            status = self._status(submitted)
            if status is None:
                continue
            del self.jobs[name]
            restarts = self.restarts.get(name, 0)
            if status in ASKED_TO_END and restarts < RESTARTS:
                # It was preempted and ended before SLURM could requeue it.
                self.restarts[name] = restarts + 1
                self._submit(job)
            else:
                ended.append((job, status))
        return ended

    def _status(self, submitted: Any) -> int | None:
        """The exit code of a job that has ended."""
        if submitted.paths.result_pickle.exists():
            try:
                return submitted.result()
            except Exception as error:
                return self._lost(submitted, str(error).strip().splitlines()[-1])
        if submitted.job_id in self._queue():
            self.left_at.pop(submitted.job_id, None)
            return None
        left_at = self.left_at.setdefault(submitted.job_id, time.monotonic())
        if time.monotonic() < left_at + SECONDS_WITHOUT_RESULT:
            return None
        return self._lost(submitted, "SLURM ended the job without a result")

    def _lost(self, submitted: Any, reason: str) -> int:
        job = next(job for job, other in self.jobs.values() if other is submitted)
        with open(job.log, "a", encoding="utf-8") as log:
            log.write(f"\nerror: {reason} (more in {submitted.paths.stdout})\n")
        return 1

    def _queue(self) -> dict[str, str]:
        """The states of this person's jobs. sacct, which submitit asks, may not be there."""
        if time.monotonic() > self.asked_at + SECONDS_BETWEEN_QUERIES:
            self.asked_at = time.monotonic()
            command = ["squeue", "--me", "--noheader", "--format=%i %T", "--states=all"]
            result = subprocess.run(command, capture_output=True, text=True)
            # A controller that does not answer for a while has not lost its jobs.
            if result.returncode == 0:
                ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")
                states = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
                self.states = {
                    number: state for number, state in states.items() if state not in ended
                }
        return self.states

    def stop(self) -> None:
        numbers = [submitted.job_id for _, submitted in self.jobs.values()]
        if numbers:
            subprocess.run(["scancel", *numbers], capture_output=True)
