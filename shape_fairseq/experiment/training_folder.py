"""Placeholder until evaluation.training_folder is there."""

import hashlib
import os
from pathlib import Path

from ..errors import UserError
from ..evaluation.results import read_parameters
from .variables import WHOLE_NUMBER


def data_setting(setting: str) -> str:
    return "vanilla" if setting == "scaling_nmt" else setting


def languages(data: Path) -> tuple[str, str]:
    return ("en", "de")


def check_data(data: Path, setting: str) -> None:
    if data == Path():
        raise UserError("set DATA to the folder that data_prep/prepare_*.sh made")
    if not data.is_dir():
        raise UserError(f"the data folder {data} is missing: make it with data_prep/prepare_*.sh")
    bin_ = data_setting(setting)
    src, tgt = languages(data)
    needed = [
        data / bin_ / f"train.{src}-{tgt}.{src}.idx",
        data / "parameters.txt",
        data / "dict.txt",
    ]
    if not all(p.exists() for p in needed):
        raise UserError(
            f"{data} has no complete data-bin {bin_}: run data_prep/prepare_*.sh on it again"
        )


def data_hash(data: Path) -> str:
    content = b"".join((data / name).read_bytes() for name in ("parameters.txt", "dict.txt"))
    return hashlib.sha256(content).hexdigest()[:16]


def read_recipe(save: Path) -> dict[str, str]:
    return read_parameters(save / "recipe.txt")


def completed_updates(save: Path) -> int | None:
    path = save / "completed_updates.txt"
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8").strip()
    if not WHOLE_NUMBER.fullmatch(text):
        raise UserError(f"{path} holds no number: delete it and train again")
    return int(text)


def write_lines(path: Path, *lines: str) -> None:
    partial = Path(f"{path}.partial")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(partial, path)
