import dataclasses
import json
from typing import ClassVar, TypedDict

import pytest

from shape_fairseq import records
from shape_fairseq.errors import UserError


class Score(TypedDict):
    bleu: float


@dataclasses.dataclass(frozen=True)
class Part:
    beam: int = 4


@dataclasses.dataclass(frozen=True)
class Example:
    FORMAT: ClassVar[int] = 2
    name: str
    seed: int
    scores: dict[str, list[Score]]
    counts: tuple[int, str] | None = None
    max_shift: int | None = None
    part: Part = Part(5)


EXAMPLE = Example("ape", 1, {"test": [{"bleu": 20.5}, {"bleu": 21}]}, part=Part(6))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "example.json"
    path.write_bytes(records.to_json(EXAMPLE))
    return path


def test_what_is_written_is_read(path):
    assert json.loads(path.read_text())["format"] == 2
    assert records.read(path, Example, "an example") == EXAMPLE


def test_a_file_from_before_there_were_versions_is_read(path):
    fields = json.loads(path.read_text())
    del fields["format"], fields["max_shift"]
    path.write_text(json.dumps(fields))
    assert records.read(path, Example, "an example") == EXAMPLE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "has format 3 and this shape-fairseq reads up to 2: update it"),
        ({"format": "two"}, "is not an example: its format is 'two'"),
        ({"seed": "one"}, "is not an example: seed must be a whole number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"max_shift": 0.5}, "max_shift must be a whole number"),
        ({"scores": {"test": [{"bleu": "20"}]}}, r"scores\.test\[0\]\.bleu must be a number"),
        ({"scores": {"test": [{}]}}, r"the field scores\.test\[0\]\.bleu is missing"),
        ({"counts": [1, "a", 2]}, "counts must be a list of 2"),
        ({"counts": [1, 2]}, r"counts\[1\] must be text"),
        ({"scores": []}, "scores must be an object with fields"),
        ({"other": 1}, "the field other is unknown"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(path, changes, message):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        records.read(path, Example, "an example")


def test_a_missing_field_is_named(path):
    fields = json.loads(path.read_text())
    del fields["seed"]
    path.write_text(json.dumps(fields))
    with pytest.raises(UserError, match="the field seed is missing"):
        records.read(path, Example, "an example")


def test_damaged_files_are_refused(path):
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-3], b"[]", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is not an example"):
            records.read(path, Example, "an example")
    path.unlink()
    with pytest.raises(UserError, match="is missing"):
        records.read(path, Example, "an example")
