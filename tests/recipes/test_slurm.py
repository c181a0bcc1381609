"""A SLURM cluster of two nodes, started on this machine, runs an experiment and a recipe."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

import shape_fairseq.models  # noqa: F401 - lets torch load fairseq's checkpoints
from shape_fairseq.experiment.description import Cluster as Options
from shape_fairseq.experiment.jobs import Job
from shape_fairseq.experiment.slurm import SlurmCluster as SlurmJobs
from tests import processes
from tests.recipes.checkpoints import trained_weights

# One cluster at a time: two would share the machine, and jobs would miss their time.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]
DAEMONS = ("slurmctld", "slurmd", "munged")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A requeued job waits until its old credential has expired.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
KillWait=5
SchedulerParameters=bf_interval=1,sched_interval=2
NodeName=DEFAULT CPUs=1 State=UNKNOWN
NodeName=node[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}]
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_daemons() -> list[str]:
    """What has to be installed first."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    return [name for name in (*DAEMONS, "sbatch") if not shutil.which(name, path=path)]


class SlurmCluster:
    """Runs while its `with` lasts; the commands of SLURM find it through `variables`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> "SlurmCluster":
        for name in ("state", "spool.node1", "spool.node2"):
            (self.folder / name).mkdir(parents=True)
        ports = free_ports()
        values = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": self.folder}
        values |= {"ctld_port": ports[0], "first_port": ports[1], "last_port": ports[1] + 1}
        Path(self.variables["SLURM_CONF"]).write_text(CONFIGURATION.format(**values))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        try:
            self._start_munge(key)
            self._start("slurmctld", "-D")
            for node in ("node1", "node2"):
                self._start("slurmd", "-D", "-N", node)
            self._wait_for_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_munge(self, key: Path) -> None:
        files = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        files |= {"seed-file": "munge.seed"}
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        # --force: its folder may lie below one that others can write to.
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *options)
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munged does not start")

    def _start(self, name: str, *options: str) -> None:
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
        with open(self.folder / f"{name}.output", "ab") as output:
            self.processes.append(
                subprocess.Popen(
                    [shutil.which(name, path=path), *options],
                    stdout=output,
                    stderr=output,
                    env=os.environ | self.variables,
                    start_new_session=True,
                )
            )

    def _wait_for_nodes(self) -> None:
        def idle() -> bool:
            return self.command("sinfo", "-hNo", "%T").stdout.split().count("idle") == 2

        self._wait(idle, "the nodes do not start")

    def _wait(self, ready, problem: str) -> None:
        end = time.monotonic() + 60
        while not ready():
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                logs = [path.read_text()[-1500:] for path in self.folder.glob("*.output")]
                raise RuntimeError("\n".join([problem, *logs]))
            time.sleep(0.2)

    def command(self, *words: str) -> subprocess.CompletedProcess:
        """Run a command of SLURM on this cluster."""
        return subprocess.run(
            words, capture_output=True, text=True, env=os.environ | self.variables
        )

    def __exit__(self, *_) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_ports() -> list[int]:
    """Ports that nothing listens on; the second and the third are neighbours."""
    while True:
        sockets = [socket.socket() for _ in range(2)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        first, second = (listener.getsockname()[1] for listener in sockets)
        for listener in sockets:
            listener.close()
        with socket.socket() as neighbour:
            if neighbour.connect_ex(("127.0.0.1", second + 1)) != 0:
                return [first, second, second + 1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if missing := missing_daemons():
        pytest.skip(
            f"no SLURM here: {', '.join(missing)} (Debian: apt-get install slurmctld slurmd)"
        )
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def outcome(out: Path) -> dict:
    """The scores, translations and weights of SHAPE, without times."""
    cell = "interpolate-shape-k10-seed1"
    result = json.loads((out / "results" / f"{cell}.json").read_text())
    average = trained_weights(next((out / "checkpoints" / cell).glob("average-2-*.pt")))
    weights = {name: value.numpy().tobytes() for name, value in average.items()}
    return {"bleu": result["bleu"], "hypotheses": result["hypotheses"], "weights": weights}


def test_an_experiment_with_a_preempted_training_ends_as_on_one_machine(
    recipes, demo, small_experiment, cluster, tmp_path
):
    out = tmp_path / "out"
    shutil.copytree(demo, out / "data")
    options = ("--cluster", "slurm", "--set", 'models=["shape"]')
    options += ("--set", 'analysis.names=["lengths"]')
    process = recipes.experiment(out, *options, **cluster.variables)
    name = "train-interpolate-shape-k10-seed1"
    number = preempt_when_a_checkpoint_is_there(cluster, name, out / "checkpoints", process)
    output = recipes.finish(process)
    job = cluster.command("scontrol", "show", "job", number).stdout
    assert "Restarts=1" in job and "JobState=COMPLETED" in job
    log = (out / "logs" / f"{name}.log").read_text()
    assert log.count("Loaded checkpoint ") == 1 and "trained for 4 updates" in log
    assert output.splitlines()[-1] == f"All tables and figures: {out}/report.html"
    assert outcome(out) == outcome(small_experiment / "out")


def preempt_when_a_checkpoint_is_there(cluster, name, checkpoints, process) -> str:
    """Send the signal with which SLURM announces that a job has to give way."""
    while not list(checkpoints.glob("*/checkpoint_last.pt")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    (number,) = cluster.command("squeue", "-h", "-n", name, "-o", "%i").stdout.split()
    assert cluster.command("scancel", "--signal=USR2", number).returncode == 0
    return number


def test_jobs_are_found_again_and_their_ends_are_noticed(cluster, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)

    def job(name, script):
        command = ("bash", "-c", f"{script} && touch {tmp_path / name}")
        return Job(name, name, command, (tmp_path / name,), tmp_path / f"{name}.log")

    good, bad, lost = job("good", "sleep 3"), job("bad", "exit 3"), job("lost", "sleep 100")
    options = Options(kind="slurm", gpus=0, cpus=1, hours=0.1)
    environment = {"PYTHONPATH": str(processes.REPOSITORY), "PATH": os.environ["PATH"]}
    SlurmJobs(options, environment, tmp_path).start(good)
    again = SlurmJobs(options, environment, tmp_path)  # as after a kill of the first
    for each in (good, bad, lost):
        again.start(each)
    assert len(cluster.command("squeue", "-h").stdout.splitlines()) == 3
    statuses = {}
    while len(statuses) < 3:
        statuses |= {each.name: status for each, status in again.ended()}
        if statuses.keys() == {"good", "bad"}:
            cluster.command("scancel", "-n", "lost")
        time.sleep(0.2)
    assert statuses == {"good": 0, "bad": 3, "lost": 1} and good.is_done()
    assert "error: SLURM ended the job without a result" in lost.log.read_text()


def test_a_job_trains_on_both_nodes(recipes, demo, cluster, tmp_path):
    save, log = tmp_path / "save", tmp_path / "job.log"
    # The names of the nodes have no address.
    size = {"ARCH_SIZE": "tiny", "GPUS": 0, "BATCH_TOKENS": 2000, "MAX_TOKENS": 1000}
    size |= {"MASTER_ADDR": "127.0.0.1"}
    steps = {"UPDATES": 2, "SAVE_EVERY": 1, "EXTRA": "--disable-validation --num-workers 0"}
    job = ["sbatch", "--wait", "--time", 10, "--nodes", 2, "--cpus-per-task", 1, "--output", log]
    variables = {"DATA": demo, "SAVE": save} | size | steps | cluster.variables
    recipes.command(*job, "recipes/slurm.sbatch", "vanilla", "shape", **variables)
    assert "training on 2 devices" in log.read_text()
    assert (save / "completed_updates.txt").read_text() == "2\n"


def test_a_job_without_a_model_ends_with_one_line(recipes):
    script = recipes.top / "recipes" / "slurm.sbatch"
    result = subprocess.run(["bash", script, "vanilla"], capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_the_number_of_a_job_is_no_program(recipes, tmp_path):
    variables = {"SLURM_JOB_NUM_NODES": 2, "MASTER_ADDR": "a", "SLURM_JOB_NODELIST": "a"}
    variables["SLURM_JOB_ID"] = f"a[$(touch {tmp_path}/ran)]"
    command = ["bash", "recipes/slurm.sbatch", "vanilla", "ape"]
    result = processes.run(*command, env=processes.environment(**variables), cwd=recipes.top)
    assert (result.returncode, result.stderr) == (1, "error: SLURM_JOB_ID is no number\n")
    assert not list(tmp_path.iterdir())


def test_without_slurm_there_is_one_line(recipes, tmp_path):
    process = recipes.experiment(tmp_path, "--cluster", "slurm", PATH=str(tmp_path))
    output, errors = process.communicate()
    assert (process.returncode, errors) == (
        1,
        "error: --cluster slurm: this machine has no sbatch\n",
    )
