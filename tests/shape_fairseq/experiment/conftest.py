"""Jobs that are quick shell commands."""

import pytest

from shape_fairseq.experiment.jobs import Job


@pytest.fixture
def job(tmp_path):
    """job("b", "sleep 1", needs=["a"]): a shell command that makes the file b if it succeeds."""

    def make(name, script="true", needs=(), **options):
        product = tmp_path / name
        command = ("bash", "-c", f"{script} && touch {product}")
        log = tmp_path / "logs" / f"{name}.log"
        return Job(name, f"Job {name}", command, (product,), log, tuple(needs), **options)

    return make
