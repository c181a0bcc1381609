import errno

import pytest

from shape_fairseq.errors import UserError, run


def _raise(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("do this"), "error: do this"),
        (OSError(errno.ENOSPC, "No space left on device"), "free some space and run again"),
        (PermissionError(errno.EACCES, "Permission denied", "file"), "file: Permission denied"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_expected_failures_are_one_line(error, line):
    with pytest.raises(SystemExit) as stopped:
        run(_raise(error))
    assert line in stopped.value.code and "\n" not in stopped.value.code


def test_bugs_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        run(_raise(ZeroDivisionError()))
