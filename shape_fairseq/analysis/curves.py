"""Appendix E: validation perplexity by update and by wall clock, from fairseq's logs."""

import re
from bisect import bisect_left
from os.path import commonpath, relpath
from pathlib import Path

from ..data_folder import RECIPES, read_text
from ..errors import UserError
from ..evaluation.results import label_title
from ..evaluation.training_folder import LOG, read_recipe
from . import base

NAME = "curves"
RELATIVE = "curves-relative"
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
        "growing": recipe.values.get("SHIFT_WARMUP_UPDATES", "0") not in ("", "0"),
        "seed": recipe.seed,
        "updates": list(perplexities),
        "seconds": [time_of(update, seconds) for update in perplexities],
        "perplexity": list(perplexities.values()),
    }


def name_runs(runs: list[dict]) -> list[str]:
    """A label for each run; what K is and whether it grows only where SHAPE's runs differ in it."""
    shape = [run for run in runs if run["model"] == "shape"]
    several = len({run["max_shift"] for run in shape}) > 1
    both = len({run["growing"] for run in shape}) > 1
    labels = []
    for run in runs:
        shift = f"-k{run['max_shift']}" if run["model"] == "shape" and (several or both) else ""
        labels.append(run["model"] + shift + ("-growing" if both and run["growing"] else ""))
    return labels


def compute(folders: list[Path]) -> dict:
    """The curves of all trainings, by setting; APE first.

    Trainings side by side in a folder are compared with each other, those of another are not.
    """
    places = [save.resolve().parent for save in folders]
    shared = commonpath(places)
    settings: dict[str, list[dict]] = {}
    runs = [(read_run(save), place) for save, place in zip(folders, places, strict=True)]
    for run, place in sorted(runs, key=lambda pair: RECIPES.index(pair[0]["setting"])):
        folder = f", {relpath(place, shared)}" if len(set(places)) > 1 else ""
        settings.setdefault(run.pop("setting") + folder, []).append(run)
    for side_by_side in settings.values():
        side_by_side.sort(key=place_of)
    for setting in settings:
        in_figure = runs_of(setting, settings)
        for run, label in zip(in_figure, name_runs(in_figure), strict=True):
            run["label"] = label
    return {"settings": settings}


def place_of(run: dict) -> tuple:
    """Where a run stands among others: APE first."""
    shift = run["max_shift"] or 0
    return run["model"] != "ape", run["model"], shift, run["growing"], run["seed"]


def runs_of(setting: str, settings: dict[str, list[dict]]) -> list[dict]:
    """The runs of all folders on a setting: among them a name or a colour means one thing."""
    name = setting.partition(",")[0]
    same = [runs for other, runs in settings.items() if other.partition(",")[0] == name]
    return sorted((run for runs in same for run in runs), key=place_of)


def relative(runs: list[dict]) -> list[tuple[dict, list[int], list[float]]]:
    """Each run with its perplexities divided by APE's at the same updates; none without APE."""
    ape = {run["seed"]: run for run in runs if run["model"] == "ape"}
    ratios = []
    for run in runs:
        if run["model"] == "ape" or not ape:
            continue
        other = ape.get(run["seed"], next(iter(ape.values())))
        usual = dict(zip(other["updates"], other["perplexity"], strict=True))
        own = dict(zip(run["updates"], run["perplexity"], strict=True))
        shared = [update for update in own if update in usual]
        ratios.append((run, shared, [own[update] / usual[update] for update in shared]))
    return ratios


def looks(runs: list[dict], among: list[dict]) -> list[dict]:
    """How each run is drawn `among` others in the figure; of several seeds one is named."""
    from . import figures

    labels = [run["label"] for run in runs]
    known = list(dict.fromkeys(run["label"] for run in among))
    return [
        {
            "color": figures.colour(label, known),
            "marker": figures.marker(label),
            "markevery": max(1, len(run["updates"]) // 10),
            "label": label_title(label) if label not in labels[:place] else None,
        }
        for place, (run, label) in enumerate(zip(runs, labels, strict=True))
    ]


def plot(result: dict) -> dict:
    """A row for each setting: by update and by wall clock; and how far all are behind APE."""
    from . import figures

    settings = result["settings"]
    figure, axes = figures.subplots(
        len(settings), 2, figsize=(8, 0.4 + 2.6 * len(settings)), squeeze=False, sharey="row"
    )
    for (by_update, by_time), (setting, runs) in zip(axes, settings.items(), strict=True):
        for run, look in zip(runs, looks(runs, runs_of(setting, settings)), strict=True):
            by_update.plot(run["updates"], run["perplexity"], **look)
            if None not in run["seconds"]:
                by_time.plot([s / 60 for s in run["seconds"]], run["perplexity"], **look)
        by_update.set_title(f"{title(setting)}: by update", loc="left")
        by_time.set_title(f"{title(setting)}: by wall clock", loc="left")
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
    compared = {setting: runs for setting, runs in settings.items() if relative(runs)}
    return {NAME: figure} | ({RELATIVE: plot_relative(compared)} if compared else {})


def plot_relative(settings: dict[str, list[dict]]) -> object:
    """Perplexities divided by APE's, a row for each setting, a column for each folder."""
    from . import figures

    rows: dict[str, list[str]] = {}
    for setting in settings:
        rows.setdefault(setting.partition(",")[0], []).append(setting)
    columns = max(map(len, rows.values()))
    size = (max(6.0, 1.4 + 2.6 * columns), 0.4 + 2.6 * len(rows))
    figure, axes = figures.subplots(len(rows), columns, figsize=size, squeeze=False, sharey="row")
    for row, panels in zip(axes, rows.values(), strict=True):
        named: dict[str, tuple] = {}
        for axis, setting in zip(row, panels, strict=False):
            runs = settings[setting]
            by_run = dict(zip(map(id, runs), looks(runs, runs_of(setting, settings)), strict=True))
            for run, updates, ratios in relative(runs):
                (line,) = axis.plot(updates, ratios, **by_run[id(run)])
                named.setdefault(run["label"], (place_of(run), line))
            axis.axhline(1, color=figures.COLOURS["ape"], linewidth=1)
            axis.set_title(title(setting), loc="left")
            axis.set_xlabel("updates")
            axis.grid(axis="y")
        for axis in row[len(panels) :]:
            axis.remove()
        row[0].set_ylabel("validation perplexity / APE's")
        lines = [line for _, line in sorted(named.values(), key=lambda pair: pair[0])]
        beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        row[len(panels) - 1].legend(handles=lines, **beside)
    return figure


def title(setting: str) -> str:
    """VANILLA for vanilla, and the folder as it is written."""
    name, comma, folder = setting.partition(",")
    return name.upper() + comma + folder


def main(arguments: list[str]) -> None:
    """Validation perplexity by update and by wall clock (appendix E), and relative to APE's."""
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
        ratios = {id(run): values[-1] for run, _, values in relative(runs) if values}
        for run in runs:
            seconds = run["seconds"][-1]
            clock = "" if seconds is None else f" ({seconds / 60:.1f} minutes)"
            ratio = f", {ratios[id(run)]:.3f} times APE's" if id(run) in ratios else ""
            print(
                f"{setting} {label_title(run['label'])} seed {run['seed']}: perplexity"
                f" {run['perplexity'][-1]:.2f} after {run['updates'][-1]:,} updates{clock}{ratio}"
            )
