"""What the tests of the recipes share: running them as a user would, on a small demo corpus."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import processes

TOP = processes.REPOSITORY


def environment(**variables: object) -> dict[str, str]:
    """Nothing else that the person who runs the tests has set may reach the recipes."""
    return processes.environment(only=("PATH", "HOME", "LANG", "TMPDIR"), **variables)


class Recipes:
    """Starts the scripts in recipes/ and the subcommands of shape-fairseq."""

    top = TOP

    def start(self, name: str, *arguments: object, **variables: object) -> subprocess.Popen:
        command = ["bash", str(TOP / "recipes" / f"{name}.sh"), *map(str, arguments)]
        return self._start(command, **variables)

    def run(self, name: str, *arguments: object, **variables: object):
        """Run a recipe; a failure shows all that it printed."""
        return self.finish(self.start(name, *arguments, **variables))

    def experiment(self, out: Path, *options: object, **variables: object) -> subprocess.Popen:
        """Start the small experiment of small.toml in a folder."""
        file = Path(__file__).with_name("small.toml")
        return self.start_command("experiment", file, "--out", out, *options, **variables)

    def start_command(self, *arguments: object, **variables: object) -> subprocess.Popen:
        """Start `shape-fairseq ...`."""
        words = [sys.executable, "-m", "shape_fairseq", *map(str, arguments)]
        return self._start(words, **variables)

    def shape_fairseq(self, *arguments: object, **variables: object):
        """`shape-fairseq ...`; a failure shows all that it printed."""
        return self.finish(self.start_command(*arguments, **variables))

    def command(self, *words: object, **variables: object):
        """Any command from the project's folder; a failure shows all that it printed."""
        return self.finish(self._start([*map(str, words)], cwd=TOP, **variables))

    def refused(self, name: str, *arguments: object, **variables: object) -> str:
        """Run a recipe that must end with one line, without a traceback; return that line."""
        process = self.start(name, *arguments, **variables)
        output, errors = process.communicate()
        assert process.returncode == 1, output + errors
        lines = [line for line in errors.splitlines() if "no TensorBoard logs" not in line]
        assert output == "" and len(lines) == 1, output + errors
        assert lines[0].startswith("error: ")
        return lines[0]

    def _start(
        self, command: list[str], cwd: Path = TOP.parent, **variables: object
    ) -> subprocess.Popen:
        return processes.start(*command, env=environment(**variables), cwd=cwd)

    def finish(self, process: subprocess.Popen) -> str:
        """What a process printed; a failure shows all of it."""
        return processes.succeed(processes.finish(process)).stdout


@pytest.fixture(scope="session")
def recipes() -> Recipes:
    return Recipes()


@contextmanager
def made_once(tmp_path_factory, name: str) -> Iterator[Path]:
    """A folder that one of pytest's processes fills, while the others wait for it."""
    top = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent
    with open(top / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield top / name


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """The demo corpus, small, made by its own script."""
    with made_once(tmp_path_factory, "demo") as folder:
        if not (folder / "vanilla").exists():
            sizes = {"TRAIN_PAIRS": 1500, "VALID_PAIRS": 24, "TEST_PAIRS": 25, "BPE_MERGES": 300}
            script = TOP / "data_prep" / "prepare_demo.sh"
            variables = environment(SWAPPED_SAMPLE=5, **sizes)
            processes.succeed(processes.run("bash", script, folder, env=variables))
    return folder


@pytest.fixture(scope="session")
def small_experiment(recipes, demo, tmp_path_factory) -> Path:
    """The experiment of small.toml, stopped while it trains, and run to its end."""
    with made_once(tmp_path_factory, "small") as folder:
        if not (folder / "second.txt").exists():
            shutil.copytree(demo, folder / "out" / "data")
            (folder / "first.txt").write_text(stop_while_training(recipes, folder / "out"))
            output = recipes.finish(recipes.experiment(folder / "out"))
            (folder / "second.txt").write_text(output)
    return folder


def stop_while_training(recipes: Recipes, out: Path) -> str:
    """Interrupt the experiment as a person would, as soon as it trains; what it then says."""
    # Tests that run in the background ignore SIGINT, and what they start would do so too.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = recipes.experiment(out)
    signal.signal(signal.SIGINT, handler)
    for line in process.stdout:
        if "Train APE on INTERPOLATE" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    return f"{process.returncode} {errors}"
