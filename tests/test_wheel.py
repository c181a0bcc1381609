"""Only shape_fairseq is installed, with all that it reads."""

import shutil
import sys
import zipfile

import pytest

from tests import processes
from tests.processes import REPOSITORY


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    source = tmp_path / "source"  # setuptools builds in the folder of the sources
    ignored = shutil.ignore_patterns("__pycache__")
    for top in ("shape_fairseq", "data_prep", "benchmarks", "recipes"):
        shutil.copytree(REPOSITORY / top, source / top, ignore=ignored)
    for path in REPOSITORY.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    command = (sys.executable, "-m", "pip", "wheel", "-q", *options, source)
    processes.succeed(processes.run(*command, cwd=tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = REPOSITORY / "shape_fairseq"
    expected = {
        str(path.relative_to(REPOSITORY))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "shape_fairseq/analysis/report.css" in names
    assert names == expected
