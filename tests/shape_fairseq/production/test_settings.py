"""The settings of an exported model: what somebody changed, or a disk lost, is one line."""

import dataclasses
import json

import pytest

from shape_fairseq import records
from shape_fairseq.errors import UserError
from shape_fairseq.files import sha256
from shape_fairseq.production.settings import SETTINGS_FILE, Settings, check_search, read_settings
from shape_fairseq.search import Search


@pytest.fixture
def folder(tmp_path):
    """What export leaves, with a few bytes for the model."""
    files = {"model.bin": b"weights", "codes": b"a b 1\n"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    settings = Settings(
        model="RPE",
        source_lang="en",
        target_lang="de",
        max_source_positions=1024,
        max_target_positions=1024,
        quantization="int8",
        search=Search(beam=5),
        files={name: sha256(tmp_path / name) for name in files},
        signature={"updates": 3},
    )
    (tmp_path / SETTINGS_FILE).write_bytes(records.to_json(settings))
    return tmp_path


def refusal(folder) -> str:
    with pytest.raises(
        UserError, match="export the model again|with shape-fairseq export"
    ) as error:
        read_settings(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_was_exported_is_read(folder):
    settings = read_settings(folder)
    assert settings.model == "RPE" and settings.search == Search(beam=5)
    assert not settings.tokens and set(settings.files) == {"model.bin", "codes"}


def test_a_folder_of_the_first_format_is_read(folder):
    fields = json.loads((folder / SETTINGS_FILE).read_text())
    assert fields["format"] == 2
    del fields["tokens"]
    (folder / SETTINGS_FILE).write_text(json.dumps(fields | {"format": 1}))
    assert read_settings(folder).tokens is False


def test_each_file_must_be_as_it_was_written(folder, tmp_path):
    (folder / "codes").write_bytes(b"a c 1\n")
    assert f"{folder}/codes is missing or damaged" in refusal(folder)
    (folder / "codes").unlink()
    assert "codes is missing or damaged" in refusal(folder)
    (folder / SETTINGS_FILE).write_bytes(b"{")
    assert f"{SETTINGS_FILE} is damaged" in refusal(folder)
    (folder / SETTINGS_FILE).unlink()
    assert f"{SETTINGS_FILE} is missing" in refusal(folder)


TAMPERED = [
    ("max_source_positions", 1),
    ("max_source_positions", -5),
    ("max_target_positions", "many"),
    ("source_lang", None),
    ("tokens", "yes"),
    ("files", ["model.bin"]),
    ("files", {"../elsewhere": "0"}),
    ("files", {"model.bin": 0}),
    ("search", None),
    ("search", {"beam": "4"}),
    ("search", {"beam": 0, "lenpen": 0.6, "max_len_a": 2, "max_len_b": 50}),
    ("search", {"beam": 10**6, "lenpen": 0.6, "max_len_a": 2, "max_len_b": 50}),
    ("search", {"beam": 4, "lenpen": float("nan"), "max_len_a": 2, "max_len_b": 50}),
    ("search", {"beam": 4, "lenpen": 0.6, "max_len_a": float("inf"), "max_len_b": 50}),
    ("search", {"beam": 4, "lenpen": 0.6, "max_len_a": 2, "max_len_b": 50, "eval": "1"}),
    ("signature", 1),
    ("surprise", 1),
]


def test_tampered_settings_are_one_line(folder):
    path = folder / SETTINGS_FILE
    settings = json.loads(path.read_text())
    for field, value in TAMPERED:
        path.write_text(json.dumps(settings | {field: value}))
        assert str(folder) in refusal(folder), (field, value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "--beam and --max-len-b must be at least 1"),
        ({"beam": 1001}, "--beam must be at most 1,000"),
        ({"max_len_b": 0}, "--beam and --max-len-b must be at least 1"),
        ({"max_len_a": -0.5}, "--max-len-a at least 0"),
        ({"lenpen": float("inf")}, "must be finite numbers"),
    ],
)
def test_a_search_without_an_end_or_a_result_is_refused(changes, message):
    check_search(Search(beam=1, lenpen=-1, max_len_a=0, max_len_b=1))
    with pytest.raises(UserError, match=message):
        check_search(dataclasses.replace(Search(), **changes))
