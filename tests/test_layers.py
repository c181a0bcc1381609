"""Data goes one way: each room of the house imports only the rooms below it; all have tests."""

import ast
from pathlib import Path

import pytest

from tests.processes import REPOSITORY

# From top to bottom; the rooms of one line do not know each other.
LAYERS = [
    ["benchmarks"],
    ["data_prep"],
    ["shape_fairseq.__main__"],
    ["shape_fairseq.experiment"],
    ["shape_fairseq.analysis", "shape_fairseq.production"],
    ["shape_fairseq.evaluation"],
    ["shape_fairseq.models"],
    ["shape_fairseq.modules"],
    ["shape_fairseq.compat"],
    ["shape_fairseq.checkpoints"],
    ["shape_fairseq.text"],
    ["shape_fairseq.data_folder"],
    ["shape_fairseq.model_names", "shape_fairseq.records", "shape_fairseq.search"],
    ["shape_fairseq.command_line", "shape_fairseq.files", "shape_fairseq.parallel"],
    ["shape_fairseq.errors"],
    ["shape_fairseq"],
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

PACKAGE = REPOSITORY / "shape_fairseq"
TESTS = REPOSITORY / "tests" / "shape_fairseq"
# shape_fairseq/a/b.py is tested by tests/shape_fairseq/a/test_b.py. These are tested by others:
TESTED_BY = {
    "modules/fused_kernels.py": "modules/test_fused_attention.py",  # calls every kernel
    # Models of one class each: what they have in common is tested on all of them at once.
    "models/transformer_cape.py": "models/test_training_positions.py",
    "models/transformer_rope.py": "models/test_relative_positions.py",
    "models/transformer_t5_bias.py": "models/test_relative_positions.py",
}
SHORT = 25  # lines; a module of so few has not much to test


def modules() -> dict[str, Path]:
    """All modules of the project by their name."""
    paths = [
        path
        for top in ("shape_fairseq", "data_prep", "benchmarks")
        for path in (REPOSITORY / top).rglob("*.py")
    ]
    names = {path: ".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


MODULES = modules()


def imports(name: str) -> set[str]:
    """The modules of the project that a module imports, wherever in its file."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imported = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            node.body = []  # for type checkers only
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            submodules = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            imported |= submodules or {base}
    return imported & MODULES.keys()


def room(name: str) -> str:
    """The room of a module: shape_fairseq.text.bpe is in shape_fairseq.text."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "shape_fairseq" else parts[0]


def test_every_room_has_its_place():
    assert {room(name) for name in MODULES} == RANK.keys()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_import_points_upwards(name):
    here = RANK[room(name)]
    wrong = [
        other for other in imports(name) if RANK[room(other)] <= here and room(other) != room(name)
    ]
    assert wrong == []


def test_no_module_imports_itself_through_others():
    reaches = {name: imports(name) - {name} for name in MODULES}
    left = set(MODULES)
    while done := {name for name in left if not reaches[name] & left}:
        left -= done  # those whose imports are all in order
    assert left == set(), "these import each other in a circle"


def test_every_module_has_a_test_file_of_its_name():
    untested = set()
    for path in PACKAGE.rglob("*.py"):
        # __main__.py is tested by test_main.py.
        mirrored = path.relative_to(PACKAGE).with_name(f"test_{path.stem.strip('_')}.py")
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > SHORT and not (TESTS / mirrored).exists():
            untested.add(path.relative_to(PACKAGE).as_posix())
    assert untested == TESTED_BY.keys(), "give it a test file, or take it off the list"
    assert all((TESTS / other).exists() for other in TESTED_BY.values())


def test_every_test_file_is_of_a_module():
    for path in TESTS.rglob("test_*.py"):
        name = path.name.removeprefix("test_")
        module = PACKAGE / path.relative_to(TESTS).with_name(name)
        assert module.exists() or name == "main.py", path
