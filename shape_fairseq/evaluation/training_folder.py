"""The folder of a training: what the recipes and fairseq leave in it, and under which names.

For the shell, `python -m shape_fairseq.evaluation.training_folder SAVE` prints its result's name.
"""

import dataclasses
import re
from pathlib import Path

from ..command_line import Parser
from ..data_folder import RECIPES, data_hash, read_assignments, read_text
from ..errors import UserError, run
from ..model_names import MODELS

RECIPE = "recipe.txt"
HARDWARE = "hardware.txt"
COMPLETED_UPDATES = "completed_updates.txt"
LOG = "train.log"
CHECKPOINT = re.compile(r"checkpoint_\d+_(\d+)\.pt")  # checkpoint_EPOCH_UPDATES.pt
REQUIRED = ("SETTING", "MODEL", "ARCH_SIZE", "SEED", "MAX_SHIFT", "DATA_HASH")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a training was started with."""

    setting: str
    model: str
    size: str
    seed: int
    max_shift: int | None  # SHAPE's K
    data_hash: str
    values: dict[str, str]  # all lines of the file, newer and older ones have others

    @property
    def result_name(self) -> str:
        return result_name(self.setting, self.model, self.max_shift, self.seed)


def read_recipe(save: Path) -> Recipe:
    """What the training in a folder was started with."""
    path = save / RECIPE
    if not path.is_file():
        raise UserError(f"{path} is missing: {save} is no folder of a recipe")
    values = read_assignments(path)
    for name in REQUIRED:
        if name not in values:
            raise UserError(f"{path} lacks {name}: it is damaged, or no file of a recipe")
    # They become names of files.
    for name, known in (("SETTING", RECIPES), ("MODEL", MODELS)):
        if values[name] not in known:
            raise UserError(f"{path}: {name} must be one of {', '.join(known)}")
    return Recipe(
        setting=values["SETTING"],
        model=values["MODEL"],
        size=values["ARCH_SIZE"],
        seed=_number(values, "SEED", path),
        max_shift=_number(values, "MAX_SHIFT", path) if values["MAX_SHIFT"] else None,
        data_hash=values["DATA_HASH"],
        values=values,
    )


def _number(values: dict[str, str], name: str, path: Path) -> int:
    if not re.fullmatch(r"\d{1,18}", values[name], re.ASCII):
        raise UserError(f"{path}: {name} must be a whole number, not '{values[name]}'")
    return int(values[name])


def check_same_data(recipe: Recipe, save: Path, data: Path) -> None:
    """Refuse to evaluate a model on data with another vocabulary than that of its training."""
    if recipe.data_hash != data_hash(data):
        raise UserError(f"{save} was trained on other data than {data}")


def read_hardware(save: Path) -> str:
    """What the training ran on, in words."""
    path = save / HARDWARE
    if not path.is_file():
        raise UserError(f"{path} is missing: the recipes write it when a training starts")
    return " ".join(read_text(path))


def completed_updates(save: Path) -> int | None:
    """How many updates a finished training has made; none if it has not finished."""
    path = save / COMPLETED_UPDATES
    if not path.exists():
        return None
    text = "".join(read_text(path)).strip()
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise UserError(f"{path} holds no number: delete it and train again")
    return int(text)


def checkpoints(save: Path) -> dict[int, Path]:
    """All checkpoints of a training by their updates, oldest first."""
    paths = {
        int(match[1]): path
        for path in save.glob("checkpoint_*.pt")
        if (match := CHECKPOINT.fullmatch(path.name))
    }
    return dict(sorted(paths.items()))


def last_checkpoints(save: Path, number: int) -> dict[int, Path]:
    """The newest `number` checkpoints of a training by their updates, oldest first."""
    paths = checkpoints(save)
    if len(paths) < number:
        raise UserError(
            f"{save} has {len(paths)} checkpoints and {number} are to be averaged:"
            f" train longer, or set AVERAGE={max(len(paths), 1)}"
        )
    return dict(list(paths.items())[-number:])


def average_path(save: Path, number: int) -> Path:
    """The average of the newest checkpoints; its name tells it from one of a shorter training."""
    newest = list(last_checkpoints(save, number))[-1]
    # The last update has a checkpoint with a number only if SAVE_EVERY divides it.
    return save / average_name(number, completed_updates(save) or newest)


def average_name(number: int, updates: int) -> str:
    """The name of the average of the last `number` checkpoints of a training of `updates`."""
    return f"average-{number}-at-{updates}.pt"


def result_name(setting: str, model: str, max_shift: int | None, seed: int) -> str:
    """The name of a result file: interpolate-shape-k40-seed1.json."""
    shift = "" if max_shift is None else f"-k{max_shift}"
    return f"{setting}-{model}{shift}-seed{seed}.json"


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.evaluation.training_folder",
        description="Print the name of the result file of a training.",
        example="runs/demo/checkpoints/interpolate-ape-seed1",
    )
    parser.add_argument("save", type=Path, help="the folder of the training")
    print(read_recipe(parser.parse_args().save).result_name)


if __name__ == "__main__":
    run(main)
