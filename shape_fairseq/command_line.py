"""Command lines: options typed where they are parsed, and mistakes told in one line."""

import argparse
import sys


class Parser(argparse.ArgumentParser):
    """argparse's parser, which answers a mistake with one line instead of a page of usage."""

    def error(self, message: str):
        sys.stderr.write(f"error: {message} ({self.prog} --help shows all options)\n")
        sys.exit(2)


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)
