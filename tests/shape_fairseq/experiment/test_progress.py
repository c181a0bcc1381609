"""What a person sees while jobs run: on a terminal, in a pipe, and when one fails."""

import contextlib
import io
import pty
import re

import pytest

from shape_fairseq.experiment.progress import Progress, part_done


@pytest.fixture
def training(job, tmp_path):
    """training("num_updates=5"): a training of ten updates whose log ends so."""

    def make(log: str | bytes, name="a", updates=10, **options):
        path = tmp_path / f"{name}.train.log"
        path.write_bytes(log if isinstance(log, bytes) else log.encode())
        return job(name, updates=updates, updates_log=path, **options)

    return make


def begin(jobs, stream=None, done=(), slots=1) -> Progress:
    progress = Progress(io.StringIO() if stream is None else stream)
    progress.begin(jobs, set(done), slots)
    return progress


# As fairseq writes them with --log-format simple and json, while it trains and after an epoch.
LINES = [
    "2026-03-01 10:00:01 | INFO | train_inner | epoch 001:      5 / 271 loss=7.4, ppl=168.4,"
    " wps=6021.6, ups=15.3, wpb=392.9, bsz=36.3, num_updates=5, lr=9.375e-05, gnorm=2.6, wall=1",
    "2026-03-01 10:00:02 | INFO | train | epoch 001 | loss 6.2 | ppl 73.9 | num_updates 5 | lr 0.1",
    "2026-03-01 10:00:02 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 6.7"
    " | nll_loss 5.9 | ppl 60.9 | num_updates 5",
    '2026-03-01 10:00:01 | INFO | train_inner | {"epoch": 1, "loss": "7.4", "num_updates": "5"}',
]


@pytest.mark.parametrize("line", LINES, ids=["simple", "train", "valid", "json"])
def test_the_updates_are_read_from_every_format_of_the_log(training, line):
    assert part_done(training(f"num_updates=1\n{line}\n")) == 0.5


def test_of_a_line_that_is_half_written_nothing_is_believed(training):
    """The 5 may be the beginning of 500."""
    whole = "| num_updates=4, lr=1\n"
    for half in ("| num_updates=5", "| num_updates=", "| num_upd", '{"num_updates": "5'):
        assert part_done(training(f"{whole}{half}")) == 0.4


def test_what_has_no_log_has_not_begun(training, job, tmp_path):
    assert part_done(job("a")) == 0
    assert part_done(job("a", updates=10, updates_log=tmp_path / "none")) == 0
    assert part_done(job("a", updates=10, updates_log=tmp_path)) == 0
    for log in (b"", b"no number yet\n", b"\xff\xfe\x00"):
        assert part_done(training(log)) == 0


def test_only_the_end_of_a_long_log_counts(training):
    assert part_done(training("num_updates=3,\n" + "x" * 9000 + "\nnum_updates=4,\n")) == 0.4
    # A training that was started again with fewer updates is not more than done.
    assert part_done(training("num_updates=30,\n")) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "about 1 s left"),
        (89.4, "about 89 s left"),
        (90, "about 2 min left"),
        (5399, "about 90 min left"),
        (5400, "about 2 h left"),
        (100_000, "about 28 h left"),
    ],
)
def test_the_time_that_is_left_is_rounded_as_people_say_it(job, seconds, text):
    assert begin([job("a", weight=seconds)]).time_left() == text


def test_the_time_that_is_left_depends_on_what_is_done_and_on_the_slots(job, training):
    jobs = [job(name, weight=40) for name in "abc"]
    assert begin(jobs).time_left() == "about 2 min left"
    assert begin(jobs, done="a").time_left() == "about 80 s left"
    assert begin(jobs, slots=2).time_left() == "about 60 s left"
    # However many slots there are, the longest job takes its time.
    assert begin(jobs, slots=9).time_left() == "about 40 s left"
    half = training("num_updates=5,\n", weight=40)
    progress = begin([half])
    progress.started(half)
    # Half of a job of 40 s was done in no time, after a first estimate of a minute.
    assert progress.time_left() == "about 15 s left"


def test_a_pipe_gets_one_line_when_a_job_starts_and_nothing_else(job):
    jobs = [job("a"), job("b", weight=50)]
    progress = begin(jobs, done="a")
    progress.started(jobs[1])
    progress.show()
    progress.finished(jobs[1])
    progress.end()
    assert progress.stream.getvalue() == "[2/2] Job b (about 50 s left)\n"
    assert progress.done == {"a", "b"} and not progress.running


def test_a_failure_is_one_line_with_the_log(job, capsys):
    failing = job("a")
    progress = begin([failing])
    progress.started(failing)
    progress.failed(failing, "no such luck")
    error = capsys.readouterr().err
    assert error == f"error: 'Job a' failed: no such luck (log: {failing.log})\n"
    assert not progress.running and "a" not in progress.done


def on_terminal(width: int, monkeypatch, use) -> str:
    """All that `use`, which gets a terminal's stream, shows on it."""
    monkeypatch.setenv("COLUMNS", str(width))
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        use(stream)
    shown = b""
    with open(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # at its end
        while part := screen.read(4096):
            shown += part
    return shown.decode()


def test_a_terminal_shows_how_far_a_training_is(training, monkeypatch):
    running = training("| num_updates=4, lr=0.1\n", weight=60)

    def use(stream):
        progress = begin([running], stream)
        progress.started(running)
        progress.show()
        progress.end()

    shown = on_terminal(80, monkeypatch, use)
    assert re.search(r"\n   0:\d\d  Job a  ████████░░░░░░░░░░░░ 4/10 updates\r\n", shown)
    assert re.search(r"0 of 1 done, about \d+ s left", shown)
    assert shown.endswith("\r\033[K\033[A\033[K")  # both lines are gone


def test_a_narrow_terminal_cuts_lines_so_that_they_can_be_drawn_over(training, monkeypatch):
    running = training("| num_updates=4, lr=0.1\n")

    def use(stream):
        progress = begin([running], stream)
        progress.started(running)
        progress.show()

    lines = on_terminal(20, monkeypatch, use).split("\r\n")[1:]
    assert [len(line) for line in lines] == [19, 19]
