"""The folder that data_prep makes: what is in it, and under which names."""

from pathlib import Path

from .errors import UserError

SETTINGS = ("vanilla", "extrapolate", "interpolate")


def subset_names(folder: Path, langs: tuple[str, str]) -> list[str]:
    """The parallel texts of a folder: every NAME with NAME.SRC, which must have its NAME.TGT."""
    names = sorted(path.stem for path in folder.glob(f"*.{langs[0]}"))
    if not names:
        raise UserError(f"{folder} has no file that ends in .{langs[0]}")
    return names
