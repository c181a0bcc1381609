"""The folder that export writes for CTranslate2: the names of its files, and its settings."""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

from .. import records
from ..errors import UserError
from ..files import sha256
from ..search import Search

SETTINGS_FILE = "shape_fairseq.json"
CODES = "codes"
WIDEST_BEAM = 1000  # many times more would take all memory
VOCABULARIES = ("shared_vocabulary.json", "source_vocabulary.json")  # whichever CTranslate2 wrote


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `translate` must know about a model, and where that came from."""

    FORMAT: ClassVar[int] = 2  # 1: there were no models that take tokens

    model: str
    source_lang: str
    target_lang: str
    max_source_positions: int  # </s> is one of them
    max_target_positions: int
    quantization: str
    search: Search
    files: dict[str, str]  # checksums
    signature: dict[str, Any]
    tokens: bool = False  # tokens in, tokens out: the folder has no BPE codes


def check_search(search: Search) -> None:
    """Refuse a search that finds nothing or never ends."""
    numbers = (search.lenpen, search.max_len_a)
    if search.beam < 1 or search.max_len_b < 1 or search.max_len_a < 0:
        raise UserError("--beam and --max-len-b must be at least 1, --max-len-a at least 0")
    if search.beam > WIDEST_BEAM:
        raise UserError(f"--beam must be at most {WIDEST_BEAM:,}")
    if not all(map(math.isfinite, numbers)):
        raise UserError("--lenpen and --max-len-a must be finite numbers")


def read_settings(folder: Path) -> Settings:
    """The settings of an exported folder, of which every file must be as it was written."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: make {folder} with shape-fairseq export")
    try:
        settings = records.read(path, Settings, "the settings of an exported model")
        check_search(settings.search)
    except UserError as error:
        raise UserError(f"{path} is damaged ({error}): export the model again") from error
    if min(settings.max_source_positions, settings.max_target_positions) < 2:
        raise UserError(f"{path} is damaged (no room for a word): export the model again")
    for name, checksum in settings.files.items():
        file = folder / name
        if Path(name).name != name or not file.is_file() or sha256(file) != checksum:
            raise UserError(f"{file} is missing or damaged: export the model again")
    return settings
