"""`shape-fairseq experiment FILE.toml`: a whole experiment, from raw text to report.html."""

import argparse
import json
import os
import shlex
import signal
import sys
from pathlib import Path

from .. import records
from ..command_line import Parser
from ..data_folder import SETTINGS
from ..errors import UserError
from ..evaluation.training_folder import COMPLETED_UPDATES
from . import description
from .description import Experiment
from .jobs import Cluster, Job, run_jobs
from .locking import lock_folder
from .plan import TOP, Plan, common_variables, job_environment
from .progress import Progress
from .training import count_gpus, write_lines
from .variables import Variables, fairseq_path

# What may change from one start to the next: it adds jobs, or moves them, and changes no result.
FREE = ("name", "settings", "models", "seeds", "analysis.names", "cluster.")
DESCRIPTION = "experiment.json"
FORMAT = 1
# What there is in the folder once the values of a section of the file have been used.
MADE_WITH = {
    "corpus": f"data/{SETTINGS[0]}",
    "training": f"checkpoints/{{setting}}-*/{COMPLETED_UPDATES}",
    "translation": "results/*.json",
    "analysis": "analysis/**/*.json",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="shape-fairseq experiment",
        description="Run a whole experiment: corpus, trainings, translations, analyses, report."
        " Started again, it goes on where it was.",
        epilog="The keys of FILE, with their defaults:\n" + description.documentation(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        example="recipes/demo.toml --dry-run",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="such as recipes/demo.toml")
    parser.add_argument("--out", type=Path, metavar="DIR", help="gets everything (runs/NAME)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value for a key, such as training.interpolate.updates=2000",
    )
    parser.add_argument("--cluster", choices=("local", "slurm"), help="where to run (as in FILE)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    shown.add_argument("--list", action="store_true", help="show what is done and what is left")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Run an experiment, or show its jobs."""
    args = parse(arguments)
    chosen = [f'cluster.kind="{args.cluster}"'] if args.cluster else []
    experiment = description.load(args.file, [*args.set, *chosen])
    if not (TOP / "recipes" / "vanilla.sh").exists():
        raise UserError(f"{TOP} has no recipes: run experiments from a clone of the project")
    out = fairseq_path("--out", str((args.out or Path("runs") / experiment.name).resolve()))
    dry_run = args.dry_run or args.list
    present = gpus_here(experiment, dry_run)
    gpus = experiment.cluster.gpus
    gpus = min(present, 1) if gpus is None else gpus
    jobs = Plan(experiment, out, gpus).jobs
    if args.dry_run:
        variables = {"PYTHONPATH": str(TOP)} | common_variables(gpus)
        print("export", *(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
        for job in jobs:
            print(f"# {job.title}\n{job.shell()}")
    elif args.list:
        show_list(jobs)
    else:
        with lock_folder(out, "another experiment"):
            remember(experiment, out)
            start(experiment, out, jobs, job_environment(os.environ, gpus), present)


def gpus_here(experiment: Experiment, dry_run: bool) -> int:
    """How many GPUs this machine has, as far as it matters."""
    options = experiment.cluster
    if options.gpus == 0 or options.kind == "slurm" or (dry_run and options.gpus is not None):
        return 0
    return count_gpus(Variables({}))


def show_list(jobs: list[Job]) -> None:
    done = [job for job in jobs if job.is_done()]
    for job in jobs:
        print(f"{'done' if job in done else 'left'}  {job.name}")
    print(f"{len(done)} of {len(jobs)} done")


def remember(experiment: Experiment, out: Path) -> None:
    """One folder holds one experiment; more settings, models, seeds or analyses may be added."""
    path = out / DESCRIPTION
    values = {
        key: value
        for key, value in description.flat(experiment)
        if not key.startswith(FREE) and value_matters(key, experiment)
    }
    kept = {}
    if path.exists():
        kept = records.load_json(path, "the description of an experiment")
        records.check_format(kept, FORMAT, path, "the description of an experiment")
    for key, value in values.items():
        if kept.get(key, value) != value and something_depends_on(key, out):
            raise UserError(
                f"{out} was made with {key} = {json.dumps(kept[key])}, not"
                f" {json.dumps(value)}: use that or another --out"
            )
    write_lines(path, json.dumps({records.FORMAT: FORMAT} | kept | values, indent=1))


def something_depends_on(key: str, out: Path) -> bool:
    """Whether there is something that was made with this value; until then it may be put right."""
    section, _, rest = key.partition(".")
    setting = rest.partition(".")[0] if "." in rest else "*"
    return any(out.glob(MADE_WITH[section].format(setting=setting)))


def value_matters(key: str, experiment: Experiment) -> bool:
    """The cells of settings that are not wanted may change until they are."""
    section, _, rest = key.partition(".")
    setting, _, name = rest.partition(".")
    if section != "training" or not name:
        return True
    return setting in experiment.settings and name not in ("models", "seeds", "tune_shifts")


def note_signals() -> list[int]:
    """The signals to end that have come by now; the list grows.

    They raise no exception: Python drops one that comes while it starts a process.
    """
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda signal_number, _: received.append(signal_number))
    return received


def start(
    experiment: Experiment, out: Path, jobs: list[Job], environment: dict[str, str], gpus: int
) -> None:
    """Run what is not done, and print the report's summary."""
    cluster: Cluster
    if experiment.cluster.kind == "slurm":
        from .slurm import SlurmCluster

        cluster = SlurmCluster(experiment.cluster, environment, out)
    else:
        from .local import LocalCluster

        cluster = LocalCluster(experiment.cluster, environment, gpus)
    if not all(job.is_done() for job in jobs):
        # The report shows all that is there, so it is made anew.
        for product in jobs[-1].products:
            product.unlink(missing_ok=True)
    signals = note_signals()
    try:
        run_jobs(jobs, cluster, Progress(), stopped=lambda: bool(signals))
    except KeyboardInterrupt:
        raise UserError("stopped: run the same command again to go on") from None
    print()
    sys.stdout.write(jobs[-1].log.read_text(encoding="utf-8"))
