"""The real fairseq commands, in processes of their own, on a corpus that the tests make."""

import json
from pathlib import Path

from tests import processes
from tests.processes import COMMANDS, REPOSITORY

USER_DIR = REPOSITORY / "shape_fairseq"

TRAINING = (
    "--user-dir", USER_DIR, "--cpu", "--optimizer", "adam", "--lr", "0.003",
    "--max-tokens", "400", "--seed", "7", "--log-format", "json", "--log-interval", "1",
    "--share-all-embeddings", "--no-progress-bar", "--num-workers", "0",
    "--no-epoch-checkpoints", "--disable-validation", "--required-batch-size-multiple", "1",
)  # fmt: skip


def run(command: str, *arguments, check: bool = True, stdin: str | None = None, **variables):
    """Run one of the environment's commands; a failure shows all that it printed."""
    result = processes.run(
        COMMANDS / command, *arguments, stdin=stdin, env=processes.environment(**variables)
    )
    return processes.succeed(result) if check else result


def train_options(data: Path, save: Path, arch: str, updates: int, *more) -> list[str]:
    return [
        str(option)
        for option in (
            *(data, *TRAINING, "--save-dir", save, "--arch", arch),
            *("--max-update", updates, *more),
        )
    ]


def train(data: Path, save: Path, arch: str, updates: int, *more, **environment):
    """fairseq-train for a few updates; returns what it logged for each update."""
    options = train_options(data, save, arch, updates, *more)
    return logged_updates(run("fairseq-train", *options, **environment))


def logged_updates(result) -> list[dict]:
    """The JSON of every update in a training's output."""
    logs = []
    for line in (result.stdout + result.stderr).splitlines():
        _, _, entry = line.rpartition(" | ")
        if entry.startswith("{") and '"num_updates"' in entry and '"loss"' in entry:
            logs.append(json.loads(entry))
    return logs
