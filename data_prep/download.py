"""Downloads that resume, show their progress and are checked against a lock file."""

import http.client
import json
import logging
import os
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TypedDict

from tqdm import tqdm

from shape_fairseq.command_line import Parser
from shape_fairseq.errors import UserError, run
from shape_fairseq.files import PARTIAL, sha256
from shape_fairseq.records import check, load_json

log = logging.getLogger(__name__)

WHAT = "a lock file: for each name its url, and perhaps its size and sha256"
BLOCK = 1 << 16
ATTEMPTS = 5
TIMEOUT_SECONDS = 60
# Trying again does not help against these: no route, no name, nobody there.
NO_NETWORK = (socket.gaierror, ConnectionRefusedError)
INTERRUPTIONS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class _Address(TypedDict):
    url: str


class LockedFile(_Address, total=False):
    """Where a file comes from, and how to know it; these are recorded at its first download."""

    size: int
    sha256: str


def read_lock(lock: Path) -> dict[str, dict]:
    """The files of a lock file: name to url, and to size and sha256 once they are known."""
    files = load_json(lock, WHAT)
    check(files, dict[str, LockedFile], lock, WHAT)
    return files


def record(lock: Path, name: str, path: Path) -> None:
    """Write a file's size and checksum into the lock, for the next machine to be checked by."""
    files = read_lock(lock)
    files[name] |= {"size": path.stat().st_size, "sha256": sha256(path)}
    partial = Path(f"{lock}{PARTIAL}")
    partial.write_text(json.dumps(files, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, lock)
    log.info("%s: recorded size and sha256 of %s", lock, name)


def difference(path: Path, expected: dict) -> str | None:
    """What distinguishes a file from the one that the lock describes, or None."""
    size = path.stat().st_size
    if expected.get("size") not in (None, size):
        return f"it has {size:,} bytes and not {expected['size']:,}"
    if expected.get("sha256") not in (None, sha256(path)):
        return "its sha256 checksum is another one"
    return None


def transfer(url: str, part: Path, name: str) -> None:
    """Fetch what is still missing of a file into `part`; raises when the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return  # Everything is here already; the check that follows decides.
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(desc=name, initial=have, total=total, unit="B", unit_scale=True, disable=None)
        with open(part, "ab" if resumed else "wb") as file, bar:
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    if total is not None and part.stat().st_size < total:
        raise ConnectionError(f"the connection ended after {part.stat().st_size:,} bytes")


def fetch(name: str, lock: Path, folder: Path, pause: float = 2.0) -> Path:
    """Download a file of the lock file, going on where an earlier attempt stopped, and check it."""
    files = read_lock(lock)
    expected = files.get(name)
    if expected is None:
        raise UserError(f"{name} is not in {lock}")
    path, part = folder / name, folder / f"{name}{PARTIAL}"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        if wrong := difference(path, expected):
            raise UserError(f"{path} is not the expected file: {wrong}; delete it to fetch it")
        return path
    for attempt in range(1, ATTEMPTS + 1):
        try:
            transfer(expected["url"], part, name)
            break
        except (*INTERRUPTIONS, ValueError) as error:  # ValueError: it is no address at all
            reason = getattr(error, "reason", None) or error
            wrong_address = getattr(error, "code", 500) < 500 or isinstance(error, ValueError)
            final = wrong_address or isinstance(reason, NO_NETWORK)
            log.info("%s: attempt %d of %d: %s", name, attempt, ATTEMPTS, reason)
            if final or attempt == ATTEMPTS:
                raise UserError(
                    f"cannot download {expected['url']} ({reason}): run again to go on, or put"
                    f" {' '.join(files)} into a folder DIR and run with RAW=DIR"
                ) from error
            time.sleep(pause * attempt)
    if wrong := difference(part, expected):
        part.unlink()
        raise UserError(
            f"{expected['url']} is not the expected file: {wrong}; it was removed, run again"
        )
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    if "sha256" not in expected:
        record(lock, name, path)
    return path


def main() -> None:
    parser = Parser(
        prog="python -m data_prep.download",
        description=__doc__,
        example="--lock data_prep/multi30k.lock.json --output download --list",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of the lock file")
    parser.add_argument("--lock", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="only print the addresses and names")
    args = parser.parse_args()
    files = read_lock(args.lock)
    if args.list:
        for name in args.names or files:
            print(f"{files[name]['url']}  {name}")
        return
    for name in args.names or files:
        fetch(name, args.lock, args.output)


if __name__ == "__main__":
    run(main)
