"""The prepare scripts, run for real: complete builds, kills, a full disk, changed parameters."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from itertools import islice
from pathlib import Path

import pytest

from data_prep.demo_corpus import generate
from shape_fairseq.text.separator import split_joined

# One process for all: its tests share two corpora that take long to make.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("prepare_scripts")]
SETTINGS = ("vanilla", "extrapolate", "interpolate")
YEARS = [f"newstest{year}" for year in range(2010, 2017)]
SMALL_DEMO = {"TRAIN_PAIRS": 600, "VALID_PAIRS": 25, "TEST_PAIRS": 20, "BPE_MERGES": 200,
              "MAX_TOKENS": 500}  # fmt: skip


def binarized_sizes(folder: Path) -> dict[str, int]:
    """The number of sequences of every subset of a data-bin, as fairseq reads it."""
    from fairseq.data import indexed_dataset

    sizes = {}
    for index in folder.glob("*.en-de.de.idx"):
        name = index.name.partition(".")[0]
        sides = {
            len(indexed_dataset.make_dataset(str(folder / f"{name}.en-de.{lang}"), impl="mmap"))
            for lang in ("en", "de")
        }
        assert len(sides) == 1, f"{name} has unequal sides"
        sizes[name] = sides.pop()
    return sizes


def dictionaries(out: Path) -> set[bytes]:
    return {path.read_bytes() for path in [*out.glob("*/dict.*.txt"), out / "dict.txt"]}


def line_counts(folder: Path, lines) -> dict[str, int]:
    return {path.stem: len(lines(path)) for path in folder.glob("*.de")}


def snapshot(out: Path) -> dict[str, bytes]:
    """Every file of a build except those that hold times."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.suffix not in (".log", ".lock", ".png")
    }


@pytest.fixture(scope="module")
def demo(tmp_path_factory, commands) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    run = commands.script("prepare_demo", out, **SMALL_DEMO)
    assert run.returncode == 0, run.stderr
    return out


def test_demo_has_all_settings_with_one_dictionary(demo, lines):
    assert len(dictionaries(demo)) == 1
    for setting in SETTINGS:
        assert binarized_sizes(demo / setting) == line_counts(demo / "text" / setting, lines)
    assert binarized_sizes(demo / "vanilla") == {"train": 600, "valid": 25, "test": 20}
    assert binarized_sizes(demo / "interpolate") == {"train": 60, "valid": 3, "test": 2}
    assert binarized_sizes(demo / "swapped") == {"original": 60, "swapped": 60}
    assert 0 < binarized_sizes(demo / "extrapolate")["train"] < 600
    assert not list(demo.rglob("*.partial"))


def test_sep_is_one_known_symbol(demo):
    from fairseq.data import Dictionary, indexed_dataset

    symbols = Dictionary.load(str(demo / "vanilla" / "dict.en.txt"))
    sep = symbols.index("<sep>")
    assert sep != symbols.unk()
    for lang in ("en", "de"):
        joined = indexed_dataset.make_dataset(
            str(demo / f"interpolate/train.en-de.{lang}"), impl="mmap"
        )
        assert sum(int((sequence == sep).sum()) for sequence in joined) == 60 * 9
        assert not any((sequence == symbols.unk()).any() for sequence in joined)


def test_references_are_the_raw_text(demo, lines):
    for name in ("valid", "test"):
        raw = lines(demo / f"raw/{name}.de")
        assert lines(demo / f"reference/vanilla/{name}.de") == raw
        joined = lines(demo / f"reference/interpolate/{name}.de")
        assert [text for line in joined for text in split_joined(line)] == raw
    assert len(lines(demo / "reference/swapped/swapped.de")) == 60


def test_second_run_skips_everything(demo, commands):
    before = {path: path.stat().st_mtime_ns for path in (demo / "vanilla").iterdir()}
    run = commands.script("prepare_demo", demo, **SMALL_DEMO)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("complete, skipped") == 7
    assert {path: path.stat().st_mtime_ns for path in (demo / "vanilla").iterdir()} == before


def test_other_parameters_are_refused(demo, commands):
    before = snapshot(demo)
    run = commands.script("prepare_demo", demo, **SMALL_DEMO, EXTRAPOLATE_LIMIT=7)
    assert run.returncode == 1
    assert "EXTRAPOLATE_LIMIT=30" in run.stderr and "another folder" in run.stderr
    assert snapshot(demo) == before


def test_folders_from_before_languages_could_be_chosen_still_work(demo, tmp_path, commands):
    out = tmp_path / "out"
    shutil.copytree(demo, out)
    parameters = (out / "parameters.txt").read_text()
    older = parameters.replace("SOURCE_LANG=en\nTARGET_LANG=de\n", "")
    assert older != parameters
    (out / "parameters.txt").write_text(older)
    run = commands.script("prepare_demo", out, **SMALL_DEMO)
    assert run.returncode == 0, run.stderr
    assert (out / "parameters.txt").read_text() == older
    run = commands.script("prepare_demo", out, **SMALL_DEMO, SOURCE_LANG="de", TARGET_LANG="en")
    assert run.returncode == 1 and "use these parameters or another folder" in run.stderr


def test_two_runs_at_once_are_refused(demo, commands):
    with open(demo / ".lock") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        run = commands.script("prepare_demo", demo, **SMALL_DEMO)
    assert run.returncode == 1 and "still running" in run.stderr


def test_help_and_wrong_usage(commands):
    assert "EXTRAPOLATE_LIMIT" in commands.script("prepare_demo", "--help").stdout
    assert commands.script("prepare_wmt16", "--help").returncode == 0
    assert commands.script("prepare_multi30k", "--wrong").returncode == 2


# A name that appears when the stage before it is complete: the kill strikes the stage itself.
def test_kills_at_many_points_change_nothing(demo, tmp_path, commands):
    out = tmp_path / "out"
    moments = ["raw.partial", "tokenized.partial", "text.partial",
               "dict.txt.partial", "interpolate.partial"]  # fmt: skip
    for moment in moments:
        process = subprocess.Popen(
            commands.script_command("prepare_demo", out),
            env=commands.environment(**SMALL_DEMO),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(out / moment, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        complete = snapshot(demo)
        for path, content in snapshot(out).items():
            if ".partial" not in path:
                assert content == complete[path], f"{path} looks complete and is not"
    run = commands.script("prepare_demo", out, **SMALL_DEMO)
    assert run.returncode == 0, run.stderr
    assert snapshot(out) == snapshot(demo)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, f"the run ended before {path.name}"
        time.sleep(0.005)


def test_full_disk_is_a_clear_line_and_leaves_nothing_half_done(demo, tmp_path, commands):
    disk = tmp_path / "disk"
    disk.mkdir()
    for size in ("200k", "600k"):  # Full while tokenizing, and while the settings are made.
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            run = commands.script("prepare_demo", disk / "out", **SMALL_DEMO)
            left = snapshot(disk / "out")
        finally:
            subprocess.run(["umount", disk], check=True)
        assert run.returncode == 1
        assert "No space left on device" in run.stderr
        assert "Traceback" not in run.stderr and "complete stages are kept" in run.stderr
        expected = snapshot(demo)
        assert all(expected[path] == left[path] for path in left if ".partial" not in path)
        assert left and not any(path.startswith("vanilla/") for path in left)


@pytest.fixture(scope="module")
def raw_wmt(tmp_path_factory) -> Path:
    """Source archives and test sets with the public names and layout, and demo sentences."""
    folder = tmp_path_factory.mktemp("raw")
    pairs = generate(5)
    members = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.de-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.de-en",
        "training-parallel-nc-v11.tgz": "training-parallel-nc-v11/news-commentary-v11.de-en",
    }
    for archive, member in members.items():
        with tarfile.open(folder / archive, "w:gz") as tar:
            write_members(tar, folder, member, list(islice(pairs, 120)))
    for year in YEARS:
        for side, lang in enumerate(("en", "de")):
            lines = [pair[side] for pair in islice(generate(int(year[-4:])), 12)]
            (folder / f"{year}.{lang}").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


def write_members(tar: tarfile.TarFile, folder: Path, member: str, pairs: list) -> None:
    for side, lang in enumerate(("en", "de")):
        text = folder / "member"
        text.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
        tar.add(text, f"{member}.{lang}")
        text.unlink()


@pytest.fixture(scope="module")
def wmt(raw_wmt, tmp_path_factory, commands) -> Path:
    out = tmp_path_factory.mktemp("wmt") / "out"
    run = commands.script("prepare_wmt16", out, RAW=raw_wmt, BPE_MERGES=200, MAX_TOKENS=500)
    assert run.returncode == 0, run.stderr
    return out


def test_wmt_has_every_year_and_the_years_joined(wmt):
    sizes = binarized_sizes(wmt / "vanilla")
    assert sizes == {"train": 360, "valid": 48, "test": 36} | dict.fromkeys(YEARS, 12)
    # Two sequences for each year: no sequence reaches across two of them.
    assert binarized_sizes(wmt / "interpolate") == (
        {"train": 36, "valid": 8, "test": 6} | dict.fromkeys(YEARS, 2)
    )
    assert len(dictionaries(wmt)) == 1


def test_wmt_subsets_are_listed_with_their_sacrebleu_names(wmt, lines):
    table = [line.split("\t") for line in lines(wmt / "statistics/subsets.tsv")]
    assert ["newstest2014", "newstest2014", "wmt14/full"] in table
    assert ["newstest2010", "newstest2010", "wmt10"] in table
    assert ["test", "newstest2014 newstest2015 newstest2016", ""] in table


def test_wmt_text_stays_aligned(wmt, lines):
    from shape_fairseq.text.detokenize import detokenize

    expected = dict(islice(generate(5), 360))
    english, german = (lines(wmt / f"text/vanilla/train.{lang}") for lang in ("en", "de"))
    for source, target in zip(english, german, strict=True):
        assert detokenize(target, "de") == expected[detokenize(source, "en")]


def test_old_archive_is_used_from_the_encoded_text_on(raw_wmt, wmt, tmp_path, commands, lines):
    raw = tmp_path / "raw"
    raw.mkdir()
    for year in YEARS:
        for lang in ("en", "de"):
            (raw / f"{year}.{lang}").symlink_to(raw_wmt / f"{year}.{lang}")
    with tarfile.open(raw / "wmt16_en_de.tar.gz", "w:gz") as tar:
        for lang in ("en", "de"):
            tar.add(wmt / f"encoded/train.{lang}", f"train.tok.clean.bpe.32000.{lang}")
            for year in YEARS:
                tar.add(wmt / f"encoded/{year}.{lang}", f"{year}.tok.bpe.32000.{lang}")
    run = commands.script("prepare_wmt16", tmp_path / "out", RAW=raw)
    assert run.returncode == 0, run.stderr
    assert not (tmp_path / "out/tokenized").exists()
    for name in ("train", "newstest2014", "valid"):
        path = f"text/vanilla/{name}.de"
        assert lines(tmp_path / "out" / path) == lines(wmt / path)
    assert (tmp_path / "out/dict.txt").read_bytes() == (wmt / "dict.txt").read_bytes()


def test_wmt_without_sources_says_what_to_put_where(raw_wmt, tmp_path, commands):
    raw = tmp_path / "raw"
    raw.mkdir()
    for year in YEARS:
        for lang in ("en", "de"):
            (raw / f"{year}.{lang}").symlink_to(raw_wmt / f"{year}.{lang}")
    run = commands.script("prepare_wmt16", tmp_path / "out", RAW=raw)
    assert run.returncode == 1
    assert f"error: {raw}/training-parallel-europarl-v7.tgz is missing" in run.stderr


def test_wrong_archive_is_named(raw_wmt, tmp_path, commands):
    raw = tmp_path / "raw"
    raw.mkdir()
    for path in raw_wmt.iterdir():
        (raw / path.name).symlink_to(path)
    (raw / "training-parallel-commoncrawl.tgz").unlink()
    (raw / "training-parallel-commoncrawl.tgz").write_bytes(b"not an archive")
    run = commands.script("prepare_wmt16", tmp_path / "out", RAW=raw)
    assert run.returncode == 1
    assert "has no commoncrawl.de-en.en: it is damaged or another archive" in run.stderr
    assert not (tmp_path / "out/raw").exists()


def test_multi30k(multi30k, first_lines_of_multi30k, tmp_path, commands, lines):
    out = tmp_path / "out"
    run = commands.script("prepare_multi30k", out, RAW=first_lines_of_multi30k(train=4000))
    assert run.returncode == 0, run.stderr
    assert binarized_sizes(out / "vanilla") == {"train": 4000, "valid": 1014, "test": 1000}
    assert binarized_sizes(out / "interpolate") == {"train": 400, "valid": 102, "test": 100}
    assert 1000 < binarized_sizes(out / "extrapolate")["train"] < 3500
    with gzip.open(multi30k / "val.de.gz", "rt", encoding="utf-8", newline="\n") as text:
        assert lines(out / "reference/vanilla/valid.de") == text.read().split("\n")[:-1]


def test_multi30k_without_network_says_what_to_do(tmp_path, commands):
    lock = tmp_path / "lock.json"
    names = ("train.en.gz", "train.de.gz")
    lock.write_text(json.dumps({name: {"url": f"http://127.0.0.1:1/{name}"} for name in names}))
    run = commands.script("prepare_multi30k", tmp_path / "out", LOCK=lock)
    assert run.returncode == 1
    assert "cannot download http://127.0.0.1:1/train.en.gz" in run.stderr
    assert "put train.en.gz train.de.gz into a folder DIR and run with RAW=DIR" in run.stderr
    assert sum(line.startswith(("error:", "cp:")) for line in run.stderr.splitlines()) == 1
