"""Options are read as a command does it, and then nothing is done."""

import argparse
import runpy
import sys


class Parsed(Exception):
    """Raised instead of what a command does after it has read its options."""


def run_until_parsed(words: list[str], monkeypatch) -> None:
    """Start a module with options and stop when they are read."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser, arguments=None, namespace=None):
        parsed = parse(parser, arguments, namespace)
        # The first of two parsers of shape-fairseq knows only the name of the command.
        if parser.prog == "shape-fairseq":
            return parsed
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.delitem(sys.modules, words[0], raising=False)
    runpy.run_module(words[0], run_name="__main__", alter_sys=False)
