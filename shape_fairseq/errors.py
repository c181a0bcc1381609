"""The one error of data_prep that users see: a single clear line, without a traceback."""

import errno
import logging
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can put right; the message says what to do."""


def run(main: Callable[[], None]) -> None:
    """Run a command's main function; expected failures become one line and exit code 1."""
    # Forced, because fairseq sets up logging of its own when it is imported.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit("interrupted: run the same command again to continue")
    except OSError as error:
        hint = " (free some space and run again)" if error.errno == errno.ENOSPC else ""
        sys.exit(f"error: {error.filename or 'writing'}: {error.strerror or error}{hint}")
