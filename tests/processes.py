"""The one place where tests start processes: real commands, with this Python and this project."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
COMMANDS = Path(sys.executable).parent
TIMEOUT = 600  # seconds; nothing in a test may wait forever


def environment(only: Iterable[str] = (), **variables: object) -> dict[str, str]:
    """This Python and this project first; `only` names all that is taken over from outside."""
    inherited = {name: value for name, value in os.environ.items() if not only or name in only}
    return {
        **inherited,
        "PATH": os.pathsep.join([str(COMMANDS), os.environ["PATH"]]),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in variables.items()},
    }


def start(*words: object, env: dict[str, str] | None = None, **options) -> subprocess.Popen:
    """Start a command whose output is text in pipes, unless `options` say otherwise.

    It starts above the repository: nothing may depend on the current folder.
    """
    defaults = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "cwd": REPOSITORY.parent,
        "env": environment() if env is None else env,
    }
    return subprocess.Popen([*map(str, words)], **(defaults | options))


def finish(process: subprocess.Popen, stdin: str | None = None) -> subprocess.CompletedProcess:
    """Wait for the end of a process that `start` started."""
    try:
        output, errors = process.communicate(stdin, TIMEOUT)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def run(*words: object, stdin: str | None = None, **options) -> subprocess.CompletedProcess:
    """Run a command to its end, with an empty standard input unless told otherwise."""
    options = {"stdin": subprocess.DEVNULL if stdin is None else subprocess.PIPE} | options
    return finish(start(*words, **options), stdin)


def succeed(result: subprocess.CompletedProcess) -> subprocess.CompletedProcess:
    """Fail the test, showing all that the command printed, unless it ended well."""
    if result.returncode:
        output = f"{(result.stdout or '')[-3000:]}\n{(result.stderr or '')[-3000:]}"
        pytest.fail(f"{' '.join(result.args)} ended with {result.returncode}:\n{output}")
    return result


def shape_fairseq(*arguments: object, **options) -> subprocess.CompletedProcess:
    """`shape-fairseq ...`, however it ends."""
    return run(sys.executable, "-m", "shape_fairseq", *arguments, **options)
