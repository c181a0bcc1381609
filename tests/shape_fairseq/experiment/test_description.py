"""An experiment's file: what is in it is checked."""

from pathlib import Path

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.description import documentation, keys, load

DEMO = Path(__file__).parents[3] / "recipes" / "demo.toml"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.interpolate.updatse=3", "no key training.interpolate.updatse: .* mean updates?"),
        ("training.interpolate.position_range=1.5", "position_range must be a whole number"),
        ("beam=3", "no key beam: did you mean translation.beam?"),
        ("training.updates=3", "no key training.updates: did you mean training.vanilla.updates?"),
        ("training.interpolate.updates=x", "updates must be a whole number, not 'x'"),
        ("training.interpolate.updates=3.5", "updates must be a whole number, not 3.5"),
        ("training.interpolate.updates=true", "updates must be a whole number, not True"),
        ("training.interpolate.updates=0", "updates must be at least 1, not 0"),
        ("training.interpolate.falling_lr=nan", "falling_lr must be at least 0, not nan"),
        ("corpus.nesting=2", "corpus.nesting must be at most 1, not 2"),
        ('models=["ape", "shape", "bert"]', "models: there is no 'bert': choose ape, shape"),
        ('models=["ape", "shap"]', "models: there is no 'shap': did you mean shape?"),
        ('settings=["foo"]', "settings: there is no 'foo': choose vanilla, extrapolate"),
        ("settings=[]", "settings must not be empty"),
        ('analysis.names=["typo"]', "analysis.names: there is no 'typo'"),
        ("corpus.kind=demos", "corpus.kind: there is no 'demos': did you mean demo?"),
        ("corpus.kind=multi30k", "corpus.seed is for the demo corpus"),
        ("corpus.raw=a:b", "corpus.raw must be a path without colons"),
        ("corpus.target_lang=../de", "corpus.target_lang must be a language such as en"),
        ("seeds=[1, 1]", "seeds names something twice"),
        ("seeds=3", r"seeds must be a list such as \[1, 2\], not 3"),
        ("training=3", "training must be a section"),
        ("training.options='", "training.options cannot be split into words"),
        ("name=../up", "name must be letters"),
        ("cluster={kind = 'slurm'}", "cluster.gpus is missing"),
        ("updates", "--set updates: give KEY=VALUE"),
        ("translation.lenpen=nan", "translation.lenpen must be a number up to"),
        ("cluster.hours=inf", "cluster.hours must be a number up to"),
        ("seeds=[4294967296]", "seeds must be at most 4294967295"),
        ("training.interpolate.updates=1000000000000", "updates must be a number up to"),
        ("translation.average=11", "training.saves = 10 a training on extrapolate saves 10"),
        ("training.batch_tokens=1500", "must be a multiple of training.max_tokens \\(400\\)"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(override, message):
    with pytest.raises(UserError, match=message) as error:
        load(DEMO, [override])
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.toml is missing"):
        load(tmp_path / "nowhere.toml", [])
    for content in (b"name = ", b"\xff"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UserError, match="bad.toml"):
            load(tmp_path / "bad.toml", [])
    (tmp_path / "bad.toml").write_text('settings = ["vanilla"]')
    with pytest.raises(UserError, match="training.vanilla.updates is missing"):
        load(tmp_path / "bad.toml", [])


def test_values_can_be_overridden():
    chosen = ["training.interpolate.updates=2000", "corpus.raw=some/folder", "seeds=[3, 4]"]
    experiment = load(DEMO, [*chosen, "corpus.nesting=1"])
    assert experiment.training.interpolate.updates == 2000
    assert experiment.corpus.raw == "some/folder" and experiment.corpus.nesting == 1.0
    assert experiment.seeds_of("vanilla") == [3, 4]


def test_the_documentation_has_every_key():
    text = documentation()
    for path, item in list(keys()):
        if not path.startswith(("training.extra", "training.inter", "training.scaling")):
            assert item.metadata["help"] in text, path
