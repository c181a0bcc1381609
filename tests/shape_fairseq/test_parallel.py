import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.parallel import CHUNK_LINES, available_cores, chunks, map_chunks


def total(numbers):
    return sum(numbers)


def slow_first(numbers):
    time.sleep(0.2 if numbers[0] == 0 else 0)
    return numbers


def die(numbers):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(numbers):
    raise UserError("line 7 is wrong")


def test_chunks_cover_everything_in_order():
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks([], 2)) == []


def test_results_keep_the_order_of_the_input():
    numbers = range(5 * CHUNK_LINES + 3)
    results = list(map_chunks(slow_first, numbers, workers=3))
    assert [number for chunk in results for number in chunk] == list(numbers)


def test_only_a_window_of_the_input_is_read_ahead():
    read = 0

    def stream():
        nonlocal read
        for number in range(100 * CHUNK_LINES):
            read += 1
            yield number

    results = map_chunks(total, stream(), workers=2)
    next(results)
    assert read <= 6 * CHUNK_LINES
    results.close()


def test_errors_of_the_workers_arrive():
    with pytest.raises(UserError, match="line 7"):
        list(map_chunks(fail, range(10), workers=2))


def test_killed_worker_is_a_clear_error():
    with pytest.raises(UserError, match="worker process was killed"):
        list(map_chunks(die, range(10), workers=2))


def test_workers_end_with_their_killed_parent(commands):
    program = textwrap.dedent("""
        import os, time
        from shape_fairseq.parallel import map_chunks
        def pid(numbers):
            time.sleep(0.2)
            return os.getpid()
        results = map_chunks(pid, range(10 ** 9), workers=2)
        print(next(results), flush=True)
        time.sleep(60)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=commands.environment()
    )
    worker = int(process.stdout.readline())
    os.kill(worker, 0)  # It is alive.
    process.kill()
    process.wait()
    for _ in range(100):
        if not _alive(worker):
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent by ten seconds")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_at_least_one_core():
    assert available_cores() >= 1
