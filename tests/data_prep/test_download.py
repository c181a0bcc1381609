import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from data_prep import download
from shape_fairseq.errors import UserError

CONTENT = os.urandom(300_000)


class Site(ThreadingHTTPServer):
    """A download site on loopback that can cut transfers short and ignore ranges."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut_after: list[int] = []  # bytes to send before hanging up, one for each request
        self.ranges = True
        self.requested: list[str | None] = []
        self.status: int | None = None


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server
        asked = self.headers.get("Range")
        site.requested.append(asked)
        if site.status:
            return self.send_error(site.status)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and site.ranges else 0
        if start >= len(CONTENT):
            return self.send_error(416)
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = site.cut_after.pop(0) if site.cut_after else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def site():
    server = Site()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def lock(tmp_path, site):
    """Write a lock file for one file of the site."""

    def write(**known):
        path = tmp_path / "lock.json"
        url = f"http://127.0.0.1:{site.server_port}/data.tgz"
        path.write_text(json.dumps({"data.tgz": {"url": url, **known}}))
        return path

    return write


KNOWN = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}


def fetch(lock, tmp_path):
    return download.fetch("data.tgz", lock, tmp_path / "out", pause=0)


def test_complete_transfer_is_checked_and_not_repeated(tmp_path, site, lock):
    path = fetch(lock(**KNOWN), tmp_path)
    assert path.read_bytes() == CONTENT
    assert fetch(tmp_path / "lock.json", tmp_path) == path
    assert site.requested == [None]


def test_interrupted_transfer_goes_on_where_it_stopped(tmp_path, site, lock):
    site.cut_after = [100_000, 50_000]
    assert fetch(lock(**KNOWN), tmp_path).read_bytes() == CONTENT
    assert site.requested == [None, "bytes=100000-", "bytes=150000-"]


def test_next_run_goes_on_after_a_kill(tmp_path, site, lock):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tgz.partial").write_bytes(CONTENT[:123_456])
    assert fetch(lock(**KNOWN), tmp_path).read_bytes() == CONTENT
    assert site.requested == ["bytes=123456-"]


def test_everything_there_but_the_name(tmp_path, site, lock):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tgz.partial").write_bytes(CONTENT)
    assert fetch(lock(**KNOWN), tmp_path).read_bytes() == CONTENT


def test_site_without_ranges_starts_again(tmp_path, site, lock):
    site.ranges, site.cut_after = False, [100_000]
    assert fetch(lock(**KNOWN), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"size": 5}, "300,000 bytes and not 5"), ({"sha256": "0" * 64}, "sha256 checksum")],
)
def test_wrong_file_is_removed_and_said(tmp_path, lock, wrong, message):
    with pytest.raises(UserError, match=message):
        fetch(lock(**KNOWN | wrong), tmp_path)
    assert list((tmp_path / "out").iterdir()) == []


def test_damaged_partial_file_does_not_block_forever(tmp_path, lock):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tgz.partial").write_bytes(b"x" * 1000)
    with pytest.raises(UserError, match="sha256"):
        fetch(lock(**KNOWN), tmp_path)
    assert fetch(tmp_path / "lock.json", tmp_path).read_bytes() == CONTENT


def test_present_file_is_checked_too(tmp_path, lock):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tgz").write_bytes(b"other")
    with pytest.raises(UserError, match="delete it to fetch it"):
        fetch(lock(**KNOWN), tmp_path)


def test_first_download_is_recorded_for_the_next_machine(tmp_path, lock):
    fetch(lock(), tmp_path)
    recorded = json.loads((tmp_path / "lock.json").read_text())["data.tgz"]
    assert {key: recorded[key] for key in KNOWN} == KNOWN


def test_overloaded_site_is_tried_again_and_then_named(tmp_path, site, lock):
    site.status = 503
    with pytest.raises(UserError, match="Service Unavailable"):
        fetch(lock(**KNOWN), tmp_path)
    assert len(site.requested) == download.ATTEMPTS


def test_missing_page_is_not_tried_again(tmp_path, site, lock):
    site.status = 404
    with pytest.raises(UserError, match=r"Not Found.*put data\.tgz into a folder"):
        fetch(lock(**KNOWN), tmp_path)
    assert len(site.requested) == 1


def test_no_network_is_one_clear_line(tmp_path, site, lock):
    path = lock(**KNOWN)
    site.shutdown()
    site.server_close()
    with pytest.raises(UserError, match=r"cannot download http.*RAW=DIR"):
        fetch(path, tmp_path)


def test_command_and_shipped_locks(tmp_path, lock, commands):
    run = commands.module(
        "data_prep.download", "--lock", lock(**KNOWN), "--output", tmp_path / "out"
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out/data.tgz").read_bytes() == CONTENT
    unknown = commands.module(
        "data_prep.download", "--lock", lock(), "--output", tmp_path, "nothing"
    )
    assert unknown.returncode == 1 and "nothing is not in" in unknown.stderr


@pytest.mark.parametrize("name", ["wmt16", "multi30k"])
def test_shipped_locks_are_complete(name):
    from pathlib import Path

    for entry in download.read_lock(Path(download.__file__).parent / f"{name}.lock.json").values():
        assert entry["url"].startswith("https://") and entry["size"] > 0
        assert len(entry["sha256"]) == 64


def test_multi30k_lock_describes_the_real_files(multi30k):
    from pathlib import Path

    lock = download.read_lock(Path(download.__file__).parent / "multi30k.lock.json")
    assert [download.difference(multi30k / name, entry) for name, entry in lock.items()] == [
        None
    ] * 6
