"""JSON files that we write: each has a format version, and one reader checks every field."""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from .errors import UserError

FORMAT = "format"  # the field that holds the version
Record = TypeVar("Record")


def to_json(record: Any) -> bytes:
    """A dataclass as a JSON file; its class says the version in FORMAT."""
    fields = {FORMAT: record.FORMAT} | dataclasses.asdict(record)
    return f"{json.dumps(fields, indent=1, ensure_ascii=False)}\n".encode()


def load_json(path: Path, what: str) -> dict:
    """The fields of a JSON file; `what` it should be is told when it is something else."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: it should be {what}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not {what}: it is damaged or no JSON at all") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not {what}")
    return fields


def check_format(fields: dict, newest: int, path: Path, what: str) -> None:
    """Refuse what a newer version wrote; files without a version are from before there were any."""
    version = fields.pop(FORMAT, newest)
    if type(version) is not int or version < 1:
        raise UserError(f"{path} is not {what}: its format is '{version}'")
    if version > newest:
        raise UserError(
            f"{path} has format {version} and this shape-fairseq reads up to {newest}: update it"
        )


def read(path: Path, kind: type[Record], what: str) -> Record:
    """Read a file of `to_json` as the dataclass `kind`; fields with a default may be missing."""
    fields = load_json(path, what)
    check_format(fields, getattr(kind, "FORMAT"), path, what)  # noqa: B009
    check(fields, kind, path, what)
    for name, hint in typing.get_type_hints(kind).items():
        if name in fields and isinstance(hint, type) and dataclasses.is_dataclass(hint):
            fields[name] = hint(**fields[name])
    return kind(**fields)


def check(value: Any, expected: Any, path: Path, what: str) -> None:
    """Refuse a value that is not of the expected type, with one line that names the field."""
    if problem := mismatch(value, expected):
        raise UserError(f"{path} is not {what}: {problem}")


def mismatch(value: Any, expected: Any, name: str = "") -> str | None:
    """What is wrong with a JSON value, or nothing: fields, lists and dictionaries are followed.

    `expected` is a type as in an annotation: int, str | None, list[float], tuple[int, int],
    dict[str, int], a dataclass or a TypedDict.
    """
    if expected is Any:
        return None
    if typing.is_typeddict(expected) or dataclasses.is_dataclass(expected):
        return _fields_mismatch(value, expected, name)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (types.UnionType, typing.Union):
        problems = [mismatch(value, one_of, name) for one_of in arguments]
        return None if None in problems else problems[0]
    if origin is list:
        return _wrong(value, list, name) or _first(
            mismatch(item, arguments[0], f"{name}[{index}]") for index, item in enumerate(value)
        )
    if origin is tuple:  # JSON has lists only
        if problem := _wrong(value, list, name):
            return problem
        if len(value) != len(arguments):
            return f"{name} must be a list of {len(arguments)}"
        pairs = enumerate(zip(value, arguments, strict=True))
        return _first(mismatch(item, kind, f"{name}[{index}]") for index, (item, kind) in pairs)
    if origin is dict:
        return _wrong(value, dict, name) or _first(
            mismatch(item, arguments[1], f"{name}.{key}") for key, item in value.items()
        )
    return _wrong(value, expected, name)


def _fields_mismatch(value: Any, expected: Any, name: str) -> str | None:
    if problem := _wrong(value, dict, name):
        return problem
    hints = typing.get_type_hints(expected)
    if dataclasses.is_dataclass(expected):
        fields = {field.name: field for field in dataclasses.fields(expected)}
        required = {
            field.name
            for field in fields.values()
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        }
        if unknown := value.keys() - fields.keys():
            return f"the field {min(unknown)} is unknown"
    else:
        required = expected.__required_keys__
    inside = f"{name}." if name else ""
    if missing := required - value.keys():
        return f"the field {inside}{min(missing)} is missing"
    return _first(
        mismatch(value[field], hints[field], f"{inside}{field}")
        for field in hints
        if field in value
    )


def _wrong(value: Any, expected: type | None, name: str) -> str | None:
    """A plain type; a whole number is a number too, and true is neither."""
    expected = type(None) if expected is None else expected
    allowed = (int, float) if expected is float else (expected,)
    if isinstance(value, allowed) and not (isinstance(value, bool) and bool not in allowed):
        return None
    return f"{name or 'it'} must be {NAMES.get(expected, expected.__name__)}"


NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "an object with fields",
    list: "a list",
    type(None): "null",
}


def _first(problems: typing.Iterator[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)
