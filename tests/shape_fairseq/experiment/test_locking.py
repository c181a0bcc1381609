"""One process at a time: the others wait for a moment, and then say who is there."""

import subprocess
import sys

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment import locking
from shape_fairseq.experiment.locking import lock_folder


def test_who_comes_second_is_told_who_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.3)
    lock = lock_folder(tmp_path / "new", "another training")
    with pytest.raises(UserError, match="another training is still running in .*new"):
        lock_folder(tmp_path / "new", "another training")
    lock.close()
    lock_folder(tmp_path / "new", "another training").close()


def test_a_restart_waits_for_what_a_crash_left_behind(tmp_path):
    # The child has inherited the lock, and ends when its input does.
    lock = lock_folder(tmp_path, "another training")
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys, time; sys.stdin.read(); time.sleep(1)"],
        stdin=subprocess.PIPE,
        pass_fds=[lock.fileno()],
    )
    lock.close()
    child.stdin.close()
    lock_folder(tmp_path, "another training").close()
    # Had it not waited, the child would still be there.
    assert child.wait(timeout=60) == 0


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot create the folder .*file/in"):
        lock_folder(tmp_path / "file" / "in", "another training")
