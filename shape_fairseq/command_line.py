"""Command lines: options typed where they are parsed, and mistakes told in one line."""

import argparse
import sys


class Parser(argparse.ArgumentParser):
    """argparse's parser with an example, which answers a mistake with one line, not with a page."""

    def __init__(self, *arguments, example: str | None = None, **options):
        """`example` is what may follow the command's name."""
        super().__init__(*arguments, **options)
        self.example = example

    def format_help(self) -> str:
        example = "" if self.example is None else f"\nexample:\n  {self.prog} {self.example}\n"
        return super().format_help() + example

    def error(self, message: str):
        sys.stderr.write(f"error: {message} ({self.prog} --help shows all options)\n")
        sys.exit(2)


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)
