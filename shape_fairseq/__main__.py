"""The command line of shape-fairseq."""

import argparse
from pathlib import Path


def main() -> None:
    """Run one subcommand of `shape-fairseq`."""
    parser = argparse.ArgumentParser(prog="shape-fairseq", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "user-dir", help="print this package's path, for fairseq-train --user-dir $(...)"
    )
    parser.parse_args()
    print(Path(__file__).resolve().parent)


if __name__ == "__main__":
    main()
