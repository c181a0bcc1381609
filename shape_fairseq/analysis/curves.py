"""Appendix E: validation perplexity by update and by wall clock, from fairseq's logs."""

import re
from bisect import bisect_left
from pathlib import Path

from ..data_folder import SETTINGS, read_text
from ..errors import UserError
from ..evaluation.results import label_title
from ..evaluation.training_folder import LOG, read_recipe
from . import base

NAME = "curves"
# fairseq's "simple" and "tqdm" formats, and its "json" one.
VALIDATION = re.compile(
    r'(?:\| valid on .*\bppl |"valid_ppl": ")([\d.]+).*num_updates(?: |": ")(\d+)'
)
# fairseq tells the time in the lines of the training, those of the validation have none.
CLOCK = re.compile(r'\bnum_updates(?:[= ]|": ")(\d+).*\bwall(?:[= ]|": ")([\d.]+)')


def read_log(path: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Perplexities and seconds by update; of a repeated update the last counts."""
    perplexities, seconds = {}, {0: 0.0}
    for line in read_text(path):
        if match := VALIDATION.search(line):
            perplexities[int(match[2])] = float(match[1])
        elif match := CLOCK.search(line):
            seconds[int(match[1])] = float(match[2])
    if not perplexities:
        raise UserError(f"{path} has no validation: train with validation to see its curve")
    return dict(sorted(perplexities.items())), dict(sorted(seconds.items()))


def time_of(update: int, seconds: dict[int, float]) -> float | None:
    """The wall clock at an update, on a line between the two nearest that are known."""
    known = list(seconds)
    if len(known) < 2:
        return None
    after = min(max(bisect_left(known, update), 1), len(known) - 1)
    start, end = known[after - 1], known[after]
    pace = (seconds[end] - seconds[start]) / (end - start)
    return seconds[start] + pace * (update - start)


def read_run(save: Path) -> dict:
    """The learning curve of one training of a recipe."""
    recipe = read_recipe(save)
    perplexities, seconds = read_log(save / LOG)
    return {
        "setting": recipe.setting,
        "model": recipe.model,
        "max_shift": recipe.max_shift,
        "seed": recipe.seed,
        "updates": list(perplexities),
        "seconds": [time_of(update, seconds) for update in perplexities],
        "perplexity": list(perplexities.values()),
    }


def name_runs(runs: list[dict]) -> list[str]:
    """A label for each run; SHAPE's K only where there are several."""
    several = len({run["max_shift"] for run in runs if run["model"] == "shape"}) > 1
    shifts = [run["max_shift"] if several else None for run in runs]
    return [
        run["model"] if shift is None else f"{run['model']}-k{shift}"
        for run, shift in zip(runs, shifts, strict=True)
    ]


def compute(folders: list[Path]) -> dict:
    """The curves of all trainings, by setting; APE first."""
    settings: dict[str, list[dict]] = {}
    for save in folders:
        run = read_run(save)
        settings.setdefault(run.pop("setting"), []).append(run)
    order = (*SETTINGS, *sorted(settings))
    for runs in settings.values():
        for run, label in zip(runs, name_runs(runs), strict=True):
            run["label"] = label
        runs.sort(key=lambda run: (run["model"] != "ape", run["label"], run["seed"]))
    return {"settings": {name: settings[name] for name in sorted(settings, key=order.index)}}


def plot(result: dict) -> dict:
    """A row for each setting: by update and by wall clock."""
    from . import figures

    settings = result["settings"]
    figure, axes = figures.subplots(
        len(settings), 2, figsize=(8, 0.4 + 2.6 * len(settings)), squeeze=False, sharey="row"
    )
    for (by_update, by_time), (setting, runs) in zip(axes, settings.items(), strict=True):
        labels = list(dict.fromkeys(run["label"] for run in runs))
        for place, run in enumerate(runs):
            label = run["label"]
            first = label not in [other["label"] for other in runs[:place]]
            look = {
                "color": figures.colour(label, labels),
                "marker": figures.marker(label),
                "markevery": max(1, len(run["updates"]) // 10),
                "label": label_title(label) if first else None,
            }
            by_update.plot(run["updates"], run["perplexity"], **look)
            if None not in run["seconds"]:
                by_time.plot([s / 60 for s in run["seconds"]], run["perplexity"], **look)
        by_update.set_title(f"{setting.upper()}: by update", loc="left")
        by_time.set_title(f"{setting.upper()}: by wall clock", loc="left")
        by_update.set_ylabel("validation perplexity")
        for axis in (by_update, by_time):
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(figures.LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_locator(figures.NullLocator())
            axis.grid(axis="y")
            if axis.lines:  # none by wall clock of a training that is not at its end
                axis.legend()
    axes[-1][0].set_xlabel("updates")
    axes[-1][1].set_xlabel("minutes")
    return {NAME: figure}


def main(arguments: list[str]) -> None:
    """Validation perplexity by update and by wall clock (appendix E)."""
    parser = base.command(
        NAME, main.__doc__, "runs/demo/checkpoints/interpolate-*-seed1 --out figures"
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="SAVE", help="folders of trainings of the recipes"
    )
    args = parser.parse_args(arguments)
    base.check_new(args.out, NAME)
    result = compute(args.folders)
    signature = base.signature(None, {})
    signature["trainings"] = {str(save): read_recipe(save).values for save in args.folders}
    base.publish(args.out, NAME, signature, result, plot(result))
    for setting, runs in result["settings"].items():
        for run in runs:
            seconds = run["seconds"][-1]
            clock = "" if seconds is None else f" ({seconds / 60:.1f} minutes)"
            print(
                f"{setting} {label_title(run['label'])} seed {run['seed']}: perplexity"
                f" {run['perplexity'][-1]:.2f} after {run['updates'][-1]:,} updates{clock}"
            )
