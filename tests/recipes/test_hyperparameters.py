"""The commands of all twelve cells against the paper's table 4, option by option."""

import shlex
from pathlib import Path

import pytest

from tests import processes

SETTINGS = ["vanilla", "extrapolate", "interpolate"]
MODELS = {
    "ape": {"--arch": "transformer_wmt_en_de"},
    "shape": {"--arch": "transformer_shape_wmt_en_de", "--max-shift": "500"},
    "rpe": {"--arch": "transformer_rpe_wmt_en_de", "--max-relative-distance": "16"},
}
TABLE_4 = {
    "--optimizer": "adam",
    "--adam-betas": "(0.9, 0.98)",
    "--adam-eps": "1e-8",
    "--lr-scheduler": "inverse_sqrt",
    "--warmup-updates": "8000",
    "--warmup-init-lr": "0",
    "--dropout": "0.1",
    "--clip-norm": "0.0",
    "--criterion": "label_smoothed_cross_entropy",
    "--label-smoothing": "0.1",
    "--max-update": "200000",
    "--save-interval-updates": "5000",
    "--keep-interval-updates": "10",
    "--fp16": True,
    "--ddp-backend": "pytorch_ddp",
    "--share-all-embeddings": True,
}
# https://github.com/facebookresearch/fairseq/tree/main/examples/scaling_nmt with big batches.
SCALING_NMT = {
    "--optimizer": "adam",
    "--adam-betas": "(0.9, 0.98)",
    "--clip-norm": "0.0",
    "--lr": "0.001",
    "--lr-scheduler": "inverse_sqrt",
    "--warmup-updates": "4000",
    "--warmup-init-lr": "1e-07",
    "--weight-decay": "0.0",
    "--criterion": "label_smoothed_cross_entropy",
    "--label-smoothing": "0.1",
    "--max-tokens": "3584",
    "--update-freq": "16",
    "--fp16": True,
    "--share-all-embeddings": True,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """What a dry run looks for in a data folder."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "parameters.txt").write_text("DATA=wmt16\n")
    (folder / "dict.txt").write_text("<sep> 1\n")
    for setting in SETTINGS:
        (folder / setting).mkdir()
        (folder / setting / "train.en-de.en.idx").touch()
    return folder


@pytest.fixture(scope="module")
def dry_run(recipes, prepared, tmp_path_factory):
    """dry_run("vanilla", "ape", GPUS=8): the command's words and its options by name."""

    def parse(setting, model, **variables):
        save = tmp_path_factory.mktemp("save") / "new"
        output = recipes.run(setting, model, DATA=prepared, SAVE=save, DRY_RUN=1, **variables)
        assert not save.exists()
        (line,) = output.splitlines()
        return shlex.split(line)

    return parse


def options_of(words: list[str]) -> dict:
    """{"--lr": "0.001", "--fp16": True}; of an option given twice, the last value, as argparse."""
    options = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            options[word] = True if following.startswith("--") else following
    return options


def differences(options: dict, expected: dict) -> dict:
    return {
        name: (options.get(name), value)
        for name, value in expected.items()
        if options.get(name) != value
    }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_cell_has_the_hyperparameters_of_table_4(dry_run, prepared, setting, model):
    words = dry_run(setting, model, GPUS=8)
    options = options_of(words)
    assert Path(words[0]).name == "fairseq-train"
    assert words[1] == str(prepared / setting)
    assert differences(options, TABLE_4 | MODELS[model]) == {}
    assert float(options["--lr"]) == pytest.approx(2 * 512**-0.5 * 8000**-0.5, rel=1e-5)
    assert 8 * int(options["--max-tokens"]) * int(options["--update-freq"]) == 112_000
    assert ("--max-shift" in options) == (model == "shape")
    joined = {"--max-source-positions": "4096", "--max-target-positions": "4096"}
    assert (differences(options, joined) == {}) == (setting == "interpolate")


@pytest.mark.parametrize("model", MODELS)
def test_cell_has_the_hyperparameters_of_fairseqs_page(dry_run, prepared, model):
    words = dry_run("scaling_nmt", model, GPUS=8)
    assert words[1] == str(prepared / "vanilla")
    assert differences(options_of(words), SCALING_NMT | MODELS[model]) == {}


@pytest.mark.parametrize(
    ("gpus", "nodes", "max_tokens"),
    [(1, 1, 3500), (2, 1, 3500), (4, 1, 7000), (8, 2, 3500), (16, 1, 3500), (7, 1, 4000)],
)
def test_a_batch_has_112000_tokens_on_any_number_of_gpus(dry_run, gpus, nodes, max_tokens):
    several = {"NODES": nodes, "NODE_RANK": 0, "MASTER_ADDR": "first"} if nodes > 1 else {}
    options = options_of(dry_run("vanilla", "ape", GPUS=gpus, MAX_TOKENS=max_tokens, **several))
    tokens = gpus * nodes * int(options["--max-tokens"]) * int(options["--update-freq"])
    assert tokens == 112_000
    assert options["--distributed-world-size"] == str(gpus * nodes)


def test_variables_reach_the_command(dry_run):
    chosen = {"SEED": 3, "MAX_SHIFT": 40, "UPDATES": 7000, "EXTRA": "--lr 0.5 --encoder-layers 3"}
    options = options_of(dry_run("extrapolate", "shape", GPUS=1, **chosen))
    expected = {"--seed": "3", "--max-shift": "40", "--max-update": "7000"}
    assert differences(options, expected | {"--lr": "0.5", "--encoder-layers": "3"}) == {}


def test_several_nodes_start_through_torchrun(dry_run):
    nodes = {"NODES": 2, "NODE_RANK": 1, "MASTER_ADDR": "first", "MASTER_PORT": 1234}
    words = dry_run("vanilla", "rpe", GPUS=8, **nodes)
    options = options_of(words)
    assert Path(words[0]).name == "torchrun"
    expected = {"--nnodes": "2", "--node_rank": "1", "--master_addr": "first"}
    expected |= {"--master_port": "1234", "--distributed-world-size": "16"}
    assert differences(options, expected) == {}


def test_without_a_gpu_the_cpu_trains_in_fp32(dry_run):
    options = options_of(dry_run("vanilla", "ape", GPUS=0))
    assert options["--cpu"] is True and "--fp16" not in options
    halved = options_of(dry_run("vanilla", "ape", GPUS=0, FP16=1))
    assert halved["--fp16"] is True and halved["--fp16-no-flatten-grads"] is True


def test_extra_options_are_split_as_a_shell_would(dry_run):
    extra = "--lr 0.5\n--adam-betas '(0.9, 0.999)'\n--tensorboard-logdir 'two words'"
    words = dry_run("vanilla", "ape", GPUS=1, EXTRA=extra)
    assert words[-6:] == [
        *("--lr", "0.5", "--adam-betas", "(0.9, 0.999)", "--tensorboard-logdir", "two words")
    ]


@pytest.mark.parametrize("setting", [*SETTINGS, "scaling_nmt"])
def test_the_command_in_the_recipe_is_the_one_that_runs(recipes, dry_run, setting):
    text = (recipes.top / "recipes" / f"{setting}.sh").read_text()
    literal = shlex.split(text[text.index("  fairseq-train") :].replace("\\\n", " "))
    words = dry_run(setting, "ape", GPUS=1)
    paths = {"--user-dir", "--save-dir", "--log-file", "--tensorboard-logdir"}
    read, ran = (
        {name: value for name, value in options_of(command).items() if name not in paths}
        for command in (literal, words)
    )
    assert ran == read | {"--distributed-world-size": "1"}
    assert Path(literal[1]).name == Path(words[1]).name


def test_a_dry_run_needs_no_data(recipes, tmp_path):
    output = recipes.run("interpolate", "shape", GPUS=8, DRY_RUN=1, SAVE=tmp_path / "save")
    assert output.count("\n") == 1 and "--max-shift 500" in output
    assert "DATA" in recipes.refused("interpolate", "shape", GPUS=0, DRY_RUN=0)


def test_cdpath_leads_nowhere_else(recipes, tmp_path):
    # With it cd prints where it went, and may go somewhere else.
    for name in ("recipes", "raw"):
        (tmp_path / name).mkdir()
    output = recipes.command("bash", "recipes/demo.sh", "--list", CDPATH=tmp_path)
    assert output.splitlines()[0].endswith("  corpus")
    script = recipes.top / "data_prep" / "prepare_corpus.sh"
    variables = processes.environment(CDPATH=tmp_path)
    refused = processes.run("bash", script, "raw", "out", cwd=tmp_path, env=variables)
    assert refused.stderr.splitlines()[0] == "error: raw/train.en is missing"


def test_wrong_input_ends_with_one_line(recipes, prepared, tmp_path):
    save = tmp_path / "save"

    def refused(model="ape", **variables):
        given = {"DATA": prepared, "SAVE": save, "GPUS": 8, "DRY_RUN": 1} | variables
        return recipes.refused("vanilla", model, **given)

    assert "set DATA" in refused(DATA="", DRY_RUN=0, GPUS=0)
    assert "missing" in refused(DATA=tmp_path / "nowhere", DRY_RUN=0, GPUS=0)
    assert "data-bin vanilla" in refused(DATA=tmp_path, DRY_RUN=0, GPUS=0)
    assert "DATA must be a path without colons" in refused(DATA=f"{prepared}:b")
    assert "SAVE must be a path without colons" in refused(SAVE=f"{save}:b")
    assert "choose ape, shape" in refused("bert")
    assert "do not divide" in refused(GPUS=3)
    assert "do not divide" in refused(MAX_TOKENS=3000)
    assert "GPUS must be" in refused(GPUS="many")
    assert "MAX_SHIFT must be" in refused("shape", MAX_SHIFT="-1")
    assert "SEED must be" in refused(SEED="x")
    assert "SAVE must be a path without colons" in recipes.refused("evaluate", "a:b", DATA=prepared)
    assert "UPDATES must be" in refused(UPDATES=f"a[$(touch {tmp_path}/x)]")
    assert "EXTRA cannot be split" in refused(EXTRA="--lr '0.5")
    assert "DRY_RUN must be 0 or 1" in refused(DRY_RUN="yes")
    assert "ARCH_SIZE" in refused(ARCH_SIZE="huge")
    assert "MASTER_ADDR" in refused(NODES=2)
    assert not list(tmp_path.iterdir())
