"""<sep>, which joins sentences to the long sequences of INTERPOLATE."""

import re

SEPARATOR = "<sep>"
JOIN = f" {SEPARATOR} "
# A token of its own; a model may well write two in a row, or one at the end.
BOUNDARY = re.compile(rf"(?<!\S){SEPARATOR}(?!\S)")


def split_joined(line: str) -> list[str]:
    """The sentences of a joined line: the inverse of joining them."""
    return [sentence.strip() for sentence in BOUNDARY.split(line)]
