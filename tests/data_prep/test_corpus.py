"""Anyone's text in any two languages, with all that such text may hold; and what is refused."""

import gzip
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from data_prep.settings import make_all
from shape_fairseq.data_folder import languages, read_parameters
from shape_fairseq.errors import UserError

PAIR = {"SOURCE_LANG": "fr", "TARGET_LANG": "cs"}
SMALL = {"BPE_MERGES": 50, "GROUP_SIZE": 3, "SWAPPED_SAMPLE": 5}
FRENCH = ["l'été dort", "le chat boit du lait", "où est la gare ?", "nous chantons ensemble"]
CZECH = ["léto spí", "kočka pije mléko", "kde je nádraží ?", "zpíváme spolu"]


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """French and Czech: partly packed, with byte order marks, a <sep> and a word without an end."""
    folder = tmp_path_factory.mktemp("raw")
    for name, size in (("train", 12), ("valid", 2), ("test", 2)):
        french, czech = FRENCH * size, CZECH * size
        if name == "train":
            french[5], czech[7] = "x" * 1_000_000, "\ufeffmléko"
        if name == "valid":
            french[2], czech[2] = "le <sep> chat", "<sep>"
        (folder / f"{name}.fr").write_text(
            "\ufeff" + "\n".join([*french, ""]), encoding="utf-8", newline="\n"
        )
        (folder / f"{name}.cs.gz").write_bytes(gzip.compress("\n".join([*czech, ""]).encode()))
    return folder


def prepare(raw: Path, out: Path, commands, **variables) -> subprocess.CompletedProcess:
    script = commands.script_command("prepare_corpus", out)
    return subprocess.run(
        [*script[:-1], str(raw), str(out)],
        env=commands.environment(**(SMALL | PAIR | variables)),
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def corpus(raw, tmp_path_factory, commands) -> tuple[Path, str]:
    """The prepared folder, which at first was given damaged files."""
    folder = tmp_path_factory.mktemp("corpus")
    mended = folder / "raw"
    shutil.copytree(raw, mended)
    (mended / "test.cs.gz").write_bytes((raw / "test.cs.gz").read_bytes()[:30])
    message = refusal(prepare(mended, folder / "out", commands))
    assert f"{mended}/test.cs.gz is damaged" in message
    shutil.copy(raw / "test.cs.gz", mended)
    (mended / "valid.fr").write_bytes((raw / "valid.fr").read_bytes().replace(b"le", b"\xff", 1))
    message = refusal(prepare(mended, folder / "out", commands, BPE_MERGES=51))
    assert "raw/valid: line 2 is not valid UTF-8" in message
    # Nothing was made of them yet, so mended files and other parameters are taken.
    shutil.copy(raw / "valid.fr", mended)
    run = prepare(mended, folder / "out", commands)
    assert run.returncode == 0, run.stderr
    return folder / "out", run.stderr


@pytest.mark.slow
def test_any_pair_has_its_data_bins(corpus, lines):
    out, _ = corpus
    for setting in ("vanilla", "extrapolate", "interpolate"):
        for lang in ("fr", "cs"):
            assert (out / setting / f"valid.fr-cs.{lang}.idx").exists()
    assert (out / "swapped" / "swapped.fr-cs.cs.idx").exists()
    assert languages(out) == ("fr", "cs")
    assert read_parameters(out)["BPE_MERGES"] == "50"
    assert lines(out / "tokenized/train.fr")[0] == "l&apos; été dort"  # by French rules


@pytest.mark.slow
def test_byte_order_marks_and_endless_words_are_cleaned(corpus):
    out, log = corpus
    assert "1 dropped: a word longer than 1,000 characters" in log
    assert "repaired: byte order mark" in log
    texts = [*out.glob("text/*/*"), *out.glob("reference/*/*"), out / "dict.txt"]
    assert len(texts) > 20
    assert not any("\ufeff" in path.read_text(encoding="utf-8") for path in texts)


@pytest.mark.slow
def test_sep_in_raw_text_is_no_boundary(corpus, lines):
    out, _ = corpus
    assert lines(out / "tokenized/valid.fr")[2] == "le &lt; sep &gt; chat"
    assert lines(out / "reference/vanilla/valid.fr")[2] == "le < sep > chat"
    assert lines(out / "reference/interpolate/valid.cs")[0].count("<sep>") == 2
    assert lines(out / "reference/interpolate/valid.cs")[0].endswith("< sep >")


@pytest.mark.slow
def test_other_sources_are_refused(corpus, raw, tmp_path, commands):
    out, _ = corpus
    other = tmp_path / "other"
    shutil.copytree(raw, other)
    with open(other / "valid.fr", "a") as text:
        text.write("\n")
    run = prepare(other, out, commands)
    assert run.returncode == 1
    assert "was made from other files (valid.fr)" in run.stderr


def refusal(run: subprocess.CompletedProcess) -> str:
    assert run.returncode != 0 and "Traceback" not in run.stderr
    errors = [line for line in run.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, run.stderr
    return errors[0]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"GROUP_SIZE": "abc"}, "GROUP_SIZE=abc is not a whole number"),
        ({"BPE_MERGES": "BASH_VERSINFO[$(touch x)]"}, "is not a whole number"),
        ({"MAX_POSITIONS": "0"}, "MAX_POSITIONS=0 is not a whole number"),
        ({"SOURCE_LANG": "../x"}, "'../x' is not a language"),
        ({"SOURCE_LANG": "cs"}, "source and target are both cs"),
        ({"TARGET_LANG": "sk"}, "train.sk is missing"),
    ],
)
def test_wrong_parameters_are_not_remembered(raw, tmp_path, commands, variables, message):
    assert message in refusal(prepare(raw, tmp_path / "out", commands, **variables))
    assert not (tmp_path / "out" / "sources.txt").exists()
    if "TARGET_LANG" not in variables:
        assert not (tmp_path / "out").exists()
    assert not Path("x").exists()


def test_wrong_parameters_of_the_demo_are_not_remembered(tmp_path, commands):
    for name, value in (("TRAIN_PAIRS", "abc"), ("NESTING", "2"), ("CORPUS_SEED", "-")):
        run = commands.script("prepare_demo", tmp_path / "out", **{name: value})
        assert f"{name}={value}" in refusal(run)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_a_folder_that_fairseq_takes_apart_is_refused(raw, tmp_path, commands, name):
    assert "use another folder" in refusal(prepare(raw, tmp_path / name, commands))


def test_the_only_copy_of_a_text_is_never_removed(raw, tmp_path, commands):
    shutil.copytree(raw, tmp_path / "raw")
    assert "move them out" in refusal(prepare(tmp_path / "raw", tmp_path, commands))
    assert sorted(os.listdir(tmp_path / "raw")) == sorted(os.listdir(raw))


def test_folders_and_missing_files_are_named(raw, tmp_path, commands):
    broken = tmp_path / "raw"
    shutil.copytree(raw, broken)
    os.remove(broken / "valid.cs.gz")
    assert f"{broken}/valid.cs is missing" in refusal(prepare(broken, tmp_path / "out", commands))
    (broken / "valid.cs").mkdir()
    message = refusal(prepare(broken, tmp_path / "out", commands))
    assert f"{broken}/valid.cs is a folder" in message
    assert "is not a folder" in refusal(prepare(broken / "train.fr", tmp_path / "out", commands))


def test_two_files_of_one_name_in_the_old_archive_are_not_joined(tmp_path, commands):
    raw = tmp_path / "raw:1"  # Not a machine called raw.
    raw.mkdir()
    (raw / "text").write_text("a b\n")
    years = [f"newstest{year}" for year in range(2010, 2017)]
    for lang in ("en", "de"):
        for year in years:
            shutil.copy(raw / "text", raw / f"{year}.{lang}")
    with tarfile.open(raw / "wmt16_en_de.tar.gz", "w:gz") as tar:
        for lang in ("en", "de"):
            for folder in ("one", "two"):
                tar.add(raw / "text", f"{folder}/train.tok.clean.bpe.32000.{lang}")
            for year in years:
                tar.add(raw / "text", f"{year}.tok.bpe.32000.{lang}")
    message = refusal(commands.script("prepare_wmt16", tmp_path / "out", RAW=raw))
    assert "has 2 files train.tok.clean.bpe.32000.en (one/" in message
    assert not (tmp_path / "out" / "encoded").exists()


def test_validation_text_that_no_model_takes_is_refused(tmp_path, write_text):
    write_text(tmp_path / "bpe" / "train", ["a " * 3000] * 5, ["b"] * 5)
    write_text(tmp_path / "bpe" / "valid", ["a", "a", "a"], ["b", "b " * 3000, "b"])
    limits = {"vanilla": 1024, "extrapolate": 1024, "interpolate": 4096}
    with pytest.raises(UserError) as error:
        make_all(tmp_path / "bpe", tmp_path / "out", ("en", "de"), 50, 10, limits)
    assert "valid line 2 has 3,001 subwords" in str(error.value)
    assert "--max-source-positions 3001" in str(error.value)
    longer = dict.fromkeys(limits, 3005)
    make_all(tmp_path / "bpe", tmp_path / "out2", ("en", "de"), 50, 10, longer)
