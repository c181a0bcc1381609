"""One process at a time in a folder."""

import time
from pathlib import Path
from typing import TextIO

from ..errors import UserError

# What a crash left behind has ended within this time, and the lock with it.
WAIT_SECONDS = 5.0


def lock_folder(folder: Path, holder: str) -> TextIO:
    """Lock a folder until the file that is returned is closed, by all who inherited it."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder {folder}: {error.strerror}") from error
    file = open(folder / ".lock", "w")  # noqa: SIM115 - it is open as long as it locks
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > end:
                raise UserError(f"{holder} is still running in {folder}") from None
            time.sleep(0.2)
