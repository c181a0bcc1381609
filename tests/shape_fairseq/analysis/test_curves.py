import pytest

from shape_fairseq.analysis import curves
from shape_fairseq.errors import UserError

LOG = """epoch 001:    100 / 117 loss=8.2, ppl=272.28, num_updates=100, train_wall=35, wall=40
epoch 001 | valid on 'valid' subset | loss 8.59 | ppl 353.65 | bsz 10 | num_updates 50
epoch 001 | valid on 'valid' subset | loss 7.23 | ppl 117.37 | num_updates 100 | best_loss 7.2
epoch 001 | loss 8.1 | ppl 234.97 | num_updates 120 | gnorm 0.5 | train_wall 39 | wall 50
epoch 002 | valid on 'valid' subset | loss 6.64 | ppl 71.9 | num_updates 130 | best_loss 6.64
"""
JSON_LOG = """{"epoch": 1, "ppl": "9", "num_updates": "100", "train_wall": "35", "wall": "40"}
{"epoch": 1, "valid_loss": "8.5", "valid_ppl": "353.65", "valid_num_updates": "50"}
"""


def test_curves_are_read_from_fairseqs_log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG)
    perplexities, seconds = curves.read_log(path)
    assert perplexities == {50: 353.65, 100: 117.37, 130: 71.9}
    assert seconds == {0: 0, 100: 40, 120: 50}
    assert [curves.time_of(update, seconds) for update in perplexities] == [20, 40, 55]
    path.write_text(JSON_LOG)
    assert curves.read_log(path) == ({50: 353.65}, {0: 0, 100: 40})
    path.write_text("epoch 001:    100 / 117 loss=8.2\n")
    with pytest.raises(UserError, match="no validation"):
        curves.read_log(path)


def training(folder, perplexities, **recipe):
    """A folder as a recipe leaves it, with these perplexities after 100, 200, … updates."""
    values = {"SETTING": "vanilla", "MODEL": "ape", "ARCH_SIZE": "tiny", "SEED": "1"}
    values |= {"MAX_SHIFT": "", "DATA_HASH": "0", **recipe}
    folder.mkdir(parents=True)
    (folder / "recipe.txt").write_text("".join(f"{key}={text}\n" for key, text in values.items()))
    lines = [
        f"| valid on 'valid' subset | ppl {perplexity} | num_updates {100 * number}\n"
        for number, perplexity in enumerate(perplexities, start=1)
    ]
    (folder / "train.log").write_text("".join(lines))
    return folder


def test_perplexities_are_compared_with_apes_of_the_same_folder_and_seed(tmp_path, capsys):
    shape = {"MODEL": "shape", "MAX_SHIFT": "20"}
    trainings = [
        training(tmp_path / "wide" / "shape", [60, 30, 9], **shape),
        training(
            tmp_path / "wide" / "grown", [44, 21], **shape, SHIFT_WARMUP_UPDATES="200", SEED="2"
        ),
        training(tmp_path / "wide" / "ape", [40, 20]),
        training(tmp_path / "wide" / "ape2", [44, 20], SEED="2"),
        training(tmp_path / "narrow" / "shape", [50, 40], **shape),
    ]
    curves.main([*map(str, trainings), "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "vanilla, wide APE seed 1: perplexity 20.00 after 200 updates",
        "vanilla, wide APE seed 2: perplexity 20.00 after 200 updates",
        "vanilla, wide SHAPE (K=20) seed 1: perplexity 9.00 after 300 updates, 1.500 times APE's",
        "vanilla, wide SHAPE (K=20, growing) seed 2: perplexity 21.00 after 200 updates,"
        " 1.050 times APE's",
        "vanilla, narrow SHAPE (K=20) seed 1: perplexity 40.00 after 200 updates",
    ]
    result = curves.compute(trainings)["settings"]
    (_, updates, ratios), (_, _, grown) = curves.relative(result["vanilla, wide"])
    assert (updates, ratios, grown) == ([100, 200], [1.5, 1.5], [1, 1.05])
    assert curves.relative(result["vanilla, narrow"]) == []
    assert (tmp_path / "out" / "curves-relative.png").stat().st_size > 10_000


def test_one_folder_needs_no_name_and_no_ape_no_comparison(tmp_path):
    save = training(tmp_path / "shape", [50, 40], MODEL="shape", MAX_SHIFT="20")
    assert list(curves.compute([save])["settings"]) == ["vanilla"]
    curves.main([str(save), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "curves-relative.png").exists()


def test_a_shift_has_one_name_and_one_colour_in_all_folders_of_a_setting(tmp_path):
    shifts = {"all": (10, 20, 60), "some": (20, 60), "one": (60,)}
    trainings = [
        training(tmp_path / folder / f"k{k}", [50, 40], MODEL="shape", MAX_SHIFT=str(k))
        for folder, values in shifts.items()
        for k in values
    ]
    settings = curves.compute(trainings)["settings"]
    colours: dict[str, set] = {}
    for setting, runs in settings.items():
        for look in curves.looks(runs, curves.runs_of(setting, settings)):
            colours.setdefault(look["label"], set()).add(look["color"])
    assert list(colours) == ["SHAPE (K=10)", "SHAPE (K=20)", "SHAPE (K=60)"]
    assert sorted(map(len, colours.values())) == [1, 1, 1]
    assert len(set.union(*colours.values())) == 3
