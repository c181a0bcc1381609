"""A SLURM cluster of two nodes on this machine, for the time of a test."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

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
NodeName=node[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_daemons() -> list[str]:
    """What has to be installed first."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    return [name for name in (*DAEMONS, "sbatch") if not shutil.which(name, path=path)]


class SlurmCluster:
    """with SlurmCluster(folder) as cluster: the commands of SLURM find it through cluster.variables."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> "SlurmCluster":
        for name in ("state", "spool.node1", "spool.node2"):
            (self.folder / name).mkdir(parents=True)
        ports = free_ports(4)
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


def free_ports(number: int) -> list[int]:
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
