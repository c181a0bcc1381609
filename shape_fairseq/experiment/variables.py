"""The environment variables of the recipes, each checked where it is read."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import overload

from ..errors import UserError

WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
LARGEST_SEED = 2**32 - 1  # numpy takes no larger one
NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e-?[0-9]+)?")


def shell_words(text: str) -> list[str]:
    """Words, quoted as in a shell; the end of a line separates them as a space does."""
    # shlex would keep the line break of a line that is continued.
    return shlex.split(text.replace("\\\n", " "))


class Variables:
    """Variables that a person set; an empty one counts as one that is not set."""

    def __init__(self, environment: Mapping[str, str] = os.environ):
        self.environment = environment

    def text(self, name: str, default: str = "") -> str:
        return self.environment.get(name) or default

    @overload
    def whole_number(
        self, name: str, default: int, minimum: int = 1, maximum: int | None = None
    ) -> int: ...

    @overload
    def whole_number(
        self, name: str, default: None, minimum: int = 1, maximum: int | None = None
    ) -> int | None: ...

    def whole_number(
        self, name: str, default: int | None, minimum: int = 1, maximum: int | None = None
    ) -> int | None:
        text = self.text(name)
        if not text:
            return default
        if not WHOLE_NUMBER.fullmatch(text) or int(text) < minimum:
            raise UserError(f"{name} must be a whole number of at least {minimum}, not '{text}'")
        if maximum is not None and int(text) > maximum:
            raise UserError(f"{name} must be at most {maximum}, not {text}")
        return int(text)

    def number(self, name: str, default: float) -> float:
        text = self.text(name)
        if not NUMBER.fullmatch(text or "0"):
            raise UserError(f"{name} must be a number, not '{text}'")
        return float(text) if text else default

    def like(self, default: int | float, name: str) -> int | float:
        """A number of the default's kind, at least 0."""
        if isinstance(default, int):
            return self.whole_number(name, default, minimum=0)
        return self.number(name, default)

    def switch(self, name: str, default: bool = False) -> bool:
        text = self.text(name)
        if text not in ("", "0", "1"):
            raise UserError(f"{name} must be 0 or 1, not '{text}'")
        return text == "1" if text else default

    def words(self, name: str) -> list[str]:
        """Words, quoted as in a shell; a line's end separates them as a space does."""
        try:
            words = shell_words(self.text(name))
        except ValueError as error:
            raise UserError(f"{name} cannot be split into words: {error}") from error
        if any("\n" in word for word in words):
            raise UserError(f"{name} has a line break within quotes")
        return words

    def folder(self, name: str, default: str = "") -> Path:
        """A path that fairseq takes as it is."""
        return fairseq_path(name, self.text(name, default))


def fairseq_path(name: str, text: str) -> Path:
    """A path that fairseq takes as it is; `name` is what the person calls it."""
    if ":" in text or "\n" in text:
        raise UserError(
            f"{name} must be a path without colons, which fairseq takes for several paths"
        )
    return Path(text)
