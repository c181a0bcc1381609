"""A folder holds one experiment, and a value that was wrong can be put right."""

import json
from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment import description
from shape_fairseq.experiment.command import main, remember

DEMO = Path(__file__).parents[3] / "recipes" / "demo.toml"


def start(out: Path, *overrides: str) -> None:
    remember(description.load(DEMO, list(overrides)), out)


# What a run leaves, and the values that it was made with.
@pytest.mark.parametrize(
    ("product", "bound", "free"),
    [
        ("data/vanilla", "corpus.bpe_merges=5", "training.options=--lr"),
        (
            "checkpoints/interpolate-ape-seed1/completed_updates.txt",
            "training.interpolate.updates=30",
            "training.extrapolate.updates=30",
        ),
        (
            "checkpoints/extrapolate-ape-seed1/completed_updates.txt",
            "training.options=--lr",
            "translation.beam=9",
        ),
        ("results/extrapolate-ape-seed1.json", "translation.beam=9", "analysis.speed_turns=9"),
        ("analysis/interpolate/speed.json", "analysis.speed_turns=9", "translation.beam=9"),
    ],
)
def test_a_value_is_bound_when_something_was_made_with_it(tmp_path, product, bound, free):
    start(tmp_path)
    start(tmp_path, bound)
    start(tmp_path)
    (tmp_path / product).parent.mkdir(parents=True)
    (tmp_path / product).touch()
    start(tmp_path, free)
    with pytest.raises(UserError, match=f"was made with {bound.partition('=')[0]} = "):
        start(tmp_path, free, bound)


def test_the_file_has_a_version_and_older_ones_are_read(tmp_path):
    start(tmp_path)
    path = tmp_path / "experiment.json"
    fields = json.loads(path.read_text())
    assert fields.pop("format") == 1 and fields["corpus.kind"] == "demo"
    path.write_text(json.dumps(fields))
    start(tmp_path)
    for text, message in (("{", "is damaged"), ('{"format": 9}', "has format 9"), ("[]", "is not")):
        path.write_text(text)
        with pytest.raises(UserError, match=f"experiment.json .*{message}"):
            start(tmp_path)


def test_a_folder_with_a_colon_is_refused(tmp_path):
    with pytest.raises(UserError, match="--out must be a path without colons"):
        main([str(DEMO), "--out", f"{tmp_path}/a:b", "--list"])


def test_the_list_shows_what_is_done_and_what_is_left(tmp_path, capsys):
    save = tmp_path / "checkpoints" / "interpolate-ape-seed1"
    save.mkdir(parents=True)
    (save / "completed_updates.txt").touch()
    main([str(DEMO), "--out", str(tmp_path), "--list"])
    *jobs, summary = capsys.readouterr().out.splitlines()
    assert [line for line in jobs if line.startswith("done")] == [
        "done  train-interpolate-ape-seed1"
    ]
    assert summary == f"1 of {len(jobs)} done"
