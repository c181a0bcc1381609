"""An ordered map over chunks of a stream, on all cores, in bounded memory."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from .errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK_LINES = 2000


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunks(items: Iterable[Item], size: int = CHUNK_LINES) -> Iterator[list[Item]]:
    """Consecutive lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_chunks(
    function: Callable[[list[Item]], Result],
    items: Iterable[Item],
    workers: int | None = None,
    chunk_size: int = CHUNK_LINES,
) -> Iterator[Result]:
    """Apply `function` to chunks of `items` on all cores; results keep the input's order."""
    workers = workers or available_cores()
    # Executor.map would read the whole stream ahead; this window is what bounds the memory.
    pending: deque = deque()
    with ProcessPoolExecutor(workers, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        try:
            for chunk in chunks(items, chunk_size):
                pending.append(pool.submit(function, chunk))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "a worker process was killed, perhaps for want of memory: run again, with"
                " fewer --workers if it happens again"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with(parent: int) -> None:
    """Let a worker end when its parent was killed, so that it does not wait for work forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
