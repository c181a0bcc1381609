"""The folder that data_prep makes: what is in it, and under which names.

For the shell, `python -m shape_fairseq.data_folder DATA valid` prints what valid is made of.
"""

import dataclasses
import hashlib
from pathlib import Path

from .command_line import Parser
from .errors import UserError, run
from .files import read_lines, sha256

SETTINGS = ("vanilla", "extrapolate", "interpolate")
RECIPES = (*SETTINGS, "scaling_nmt")  # how a model may be trained
SWAPPED = "swapped"  # the data-bin of table 1
LANGUAGES = ("en", "de")  # of folders that do not say
PARAMETERS = "parameters.txt"
DICTIONARY = "dict.txt"
SUBSETS = "statistics/subsets.tsv"
STATISTICS = "statistics/statistics.json"


def subset_names(folder: Path, langs: tuple[str, str]) -> list[str]:
    """The parallel texts of a folder: every NAME with NAME.SRC, which must have its NAME.TGT."""
    names = sorted(path.stem for path in folder.glob(f"*.{langs[0]}"))
    if not names:
        raise UserError(f"{folder} has no file that ends in .{langs[0]}")
    return names


def read_assignments(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines, as data_prep and the recipes leave them."""
    if not path.is_file():
        raise UserError(f"{path} is missing: is {path.parent} the right folder?")
    return dict(line.split("=", 1) for line in read_text(path) if "=" in line)


def read_parameters(data: Path) -> dict[str, str]:
    """What the data were made with."""
    return read_assignments(data / PARAMETERS)


def languages(data: Path) -> tuple[str, str]:
    """The source and the target language; English and German where a folder does not say."""
    parameters = read_parameters(data)
    source, target = (
        parameters.get(name, default)
        for name, default in zip(("SOURCE_LANG", "TARGET_LANG"), LANGUAGES, strict=True)
    )
    return source, target


def data_hash(data: Path) -> str:
    """Tells one data set from another, wherever its folder is; recipe.txt holds it."""
    digest = hashlib.sha256()
    for name in (PARAMETERS, DICTIONARY):
        path = data / name
        if not path.is_file():
            raise UserError(f"{path} is missing: is {data} the folder that data_prep made?")
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def signature(data: Path) -> dict[str, str]:
    """What a result depends on: what the data were made with, and their dictionary."""
    return {**read_parameters(data), "dictionary": dictionary_checksum(data)}


def dictionary_checksum(data: Path) -> str:
    """The SHA-256 checksum of the dictionary."""
    if not (data / DICTIONARY).is_file():
        raise UserError(f"{data / DICTIONARY} is missing: is {data} the folder of data_prep?")
    return sha256(data / DICTIONARY)


def data_setting(setting: str) -> str:
    """The data that a recipe trains on: scaling_nmt is another training on VANILLA."""
    return "vanilla" if setting == "scaling_nmt" else setting


def text_path(data: Path, setting: str, subset: str, lang: str) -> Path:
    """The BPE-encoded text of a subset."""
    return data / "text" / data_setting(setting) / f"{subset}.{lang}"


def reference_path(data: Path, setting: str, subset: str, lang: str) -> Path:
    """The text to score against: never tokenized, joined like the data."""
    return data / "reference" / data_setting(setting) / f"{subset}.{lang}"


def binarized_paths(data: Path, setting: str, subset: str, ending: str = "idx") -> list[Path]:
    """fairseq's files of a subset, source and target."""
    pair = languages(data)
    folder = data / data_setting(setting)
    return [folder / f"{subset}.{'-'.join(pair)}.{lang}.{ending}" for lang in pair]


def check_data(data: Path, setting: str) -> None:
    """Refuse a folder that has no complete data-bin of this setting."""
    if not data.is_dir():
        raise UserError(f"the data folder {data} is missing: make it with data_prep/prepare_*.sh")
    complete = all((data / name).is_file() for name in (PARAMETERS, DICTIONARY))
    if not complete or not all(map(Path.exists, binarized_paths(data, setting, "train"))):
        raise UserError(
            f"{data} has no complete data-bin {data_setting(setting)}: run data_prep/prepare_*.sh"
            " on it again"
        )


@dataclasses.dataclass(frozen=True)
class Subsets:
    """The texts to evaluate on."""

    groups: dict[str, list[str]]  # "valid": ["newstest2010", ...]
    names: list[str]  # those that are made of no others
    sacrebleu_names: dict[str, str]  # "newstest2010": "wmt10"


def read_subsets(data: Path) -> Subsets:
    """What valid and test are made of, and the subsets' names in sacreBLEU."""
    path = data / SUBSETS
    if not path.is_file():
        raise UserError(f"{path} is missing: run data_prep/prepare_*.sh on {data} again")
    groups, names, sacrebleu_names = {}, [], {}
    for line in list(read_text(path))[1:]:
        try:
            subset, parts, sacrebleu_name = line.split("\t")
        except ValueError as error:
            raise UserError(f"{path} is damaged: it needs three columns, not '{line}'") from error
        if subset in ("valid", "test"):
            groups[subset] = parts.split()
        if subset == parts:
            names.append(subset)
        if sacrebleu_name:
            sacrebleu_names[subset] = sacrebleu_name
    return Subsets(groups, names, sacrebleu_names)


def read_text(path: Path) -> list[str]:
    """The lines of a text, split at line feeds only."""
    try:
        return [line.decode("utf-8") for line in read_lines(path)]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: it is no text in UTF-8") from error


def main() -> None:
    parser = Parser(
        prog="python -m shape_fairseq.data_folder",
        description="Print the test sets that a group is made of.",
        example="runs/demo/data valid",
    )
    parser.add_argument("data", type=Path, help="the folder that data_prep made")
    parser.add_argument("group", choices=("valid", "test"))
    args = parser.parse_args()
    print(*read_subsets(args.data).groups.get(args.group, []))


if __name__ == "__main__":
    run(main)
