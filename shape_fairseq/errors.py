"""Errors that users see: a single clear line, without a traceback."""

import errno
import logging
import os
import sys
from collections.abc import Callable

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Something the user can put right; the message says what to do."""


class OptionError(SystemExit, ValueError):
    """A wrong option or checkpoint: one line for fairseq's commands, a ValueError for Python."""

    def __init__(self, message: str):
        super().__init__(f"shape_fairseq: error: {message}")


def one_line(error: BaseException, length: int = 300) -> str:
    """What an error of a library says, as one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else f"{text[: length - 3]}..."


class ClosedStream:
    """Stands for a standard stream that was closed before the command started."""

    closed = True  # so that Python does not flush it at its end

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str):
        raise OSError(errno.EBADF, "it is closed", self._name)


def _reserve_closed_streams() -> None:
    """Keep files that are opened later from getting the number of a closed standard stream."""
    for name, title in (("stdin", "standard input"), ("stdout", "standard output")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, ClosedStream(title))
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


def run(main: Callable[[], None]) -> None:
    """Run a command's main function; expected failures become one line and exit code 1."""
    _reserve_closed_streams()
    # Forced, because fairseq sets up logging of its own when it is imported.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    try:
        main()
        if not sys.stdout.closed:
            sys.stdout.flush()
    except UserError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit("interrupted: run the same command again to continue")
    except OSError as error:
        _drop_output()
        hint = " (free some space and run again)" if error.errno in NO_SPACE else ""
        sys.exit(f"error: {error.filename or 'writing'}: {error.strerror or error}{hint}")


def _drop_output() -> None:
    """Keep Python from trying, at its end, to write what could not be written."""
    if not sys.stdout.closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
