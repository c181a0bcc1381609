import gzip
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shape_fairseq.errors import UserError
from shape_fairseq.files import (
    atomic_directory,
    atomic_outputs,
    count_lines,
    read_lines,
    read_pairs,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(blacklist_characters="\n", codec="utf-8"))))
def test_lines_end_at_the_line_feed_only(tmp_path, texts):
    path = tmp_path / "text"
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    assert [line.decode() for line in read_lines(path)] == texts
    assert count_lines(path) == len(texts)


def test_last_line_without_line_feed_counts(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one\ntwo")
    assert list(read_lines(path)) == [b"one", b"two"]
    assert count_lines(path) == 2


def test_gzip_is_read_under_the_plain_name(tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(read_lines(tmp_path / "text")) == [b"one", b"two"]


def test_damaged_gzip_is_a_clear_error(tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(os.urandom(100_000))[:-5000])
    with pytest.raises(UserError, match="damaged"):
        list(read_lines(tmp_path / "text"))


@pytest.mark.parametrize("longer", ["en", "de"])
def test_unequal_line_counts_are_an_error(tmp_path, write_text, longer):
    texts = {"en": ["a", "b"], "de": ["c", "d"]}
    texts[longer].append("too much")
    prefix = write_text(tmp_path / "text", texts["en"], texts["de"])
    with pytest.raises(UserError, match="ends after 2 lines"):
        list(read_pairs(Path(f"{prefix}.en"), Path(f"{prefix}.de")))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere is missing"):
        list(read_lines(tmp_path / "nowhere"))


def test_outputs_appear_together_when_complete(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    with atomic_outputs(*paths) as files:
        for file in files:
            file.write(b"text")
        assert not any(path.exists() for path in paths)
    assert [path.read_bytes() for path in paths] == [b"text", b"text"]


def test_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), atomic_outputs(tmp_path / "a") as (file,):
        file.write(b"half")
        raise RuntimeError
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "folder") as folder:
        (folder / "file").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "a").write_text("precious")
    with pytest.raises(UserError, match="exists already"), atomic_outputs(tmp_path / "a"):
        pass
    with pytest.raises(UserError, match="exists already"), atomic_directory(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_text() == "precious"


def test_kill_leaves_no_final_name(tmp_path, commands):
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from shape_fairseq.files import atomic_outputs
        with atomic_outputs(Path(sys.argv[1])) as (file,):
            file.write(b"half")
            file.flush()
            print("writing", flush=True)
            time.sleep(60)
    """)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(out)],
        stdout=subprocess.PIPE,
        env=commands.environment(),
    )
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 256 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    for _ in range(20):
        if subprocess.run(["umount", disk], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)


def test_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path, tiny_disk, write_text, commands):
    prefix = write_text(tmp_path / "raw", ["a b c d"] * 100_000, ["e f g h"] * 100_000)
    run = commands.module(
        "shape_fairseq.text.tokenizer",
        "--input",
        prefix,
        "--output",
        tiny_disk / "train",
        "--max-tokens",
        80,
    )
    assert run.returncode == 1
    assert "No space left on device" in run.stderr and "free some space" in run.stderr
    assert "Traceback" not in run.stderr
    assert list(tiny_disk.iterdir()) == []
