"""Every fairseq command works with --user-dir, and needs no option that the checkpoint knows."""

import shutil
import sys

import pytest
import torch

from tests import processes
from tests.end_to_end.commands import REPOSITORY, USER_DIR, run, train

ARCHS = ["transformer_shape_tiny", "transformer_rpe_tiny"]


def translations(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("H-")]


@pytest.mark.parametrize("arch", ARCHS)
def test_generate_then_score(data, trained, arch, tmp_path):
    result = run(
        "fairseq-generate",
        *(data, "--user-dir", USER_DIR, "--path", trained(arch), "--cpu"),
        *("--beam", "4", "--max-tokens", "400", "--required-batch-size-multiple", "1"),
    )
    assert len(translations(result.stdout)) == 20
    lines = {
        kind: [
            line.split("\t")[-1] + "\n" for line in result.stdout.splitlines() if line[:2] == kind
        ]
        for kind in ("T-", "H-")
    }
    for kind, text in lines.items():
        (tmp_path / kind).write_text("".join(text))
    score = run("fairseq-score", "--sys", tmp_path / "H-", "--ref", tmp_path / "T-")
    assert "BLEU4 = " in score.stdout


@pytest.mark.parametrize("arch", ARCHS)
def test_interactive(data, trained, arch):
    result = run(
        "fairseq-interactive",
        *(data, "--user-dir", USER_DIR, "--path", trained(arch), "--cpu", "--beam", "2"),
        stdin="w1 w2 w3\nw4\n",
    )
    assert [line.split("\t")[0] for line in translations(result.stdout)] == ["H-0", "H-1"]


@pytest.mark.parametrize("arch", ARCHS)
def test_validate(data, trained, arch):
    result = run(
        "fairseq-validate",
        *(data, "--user-dir", USER_DIR, "--path", trained(arch), "--cpu"),
        *("--task", "translation", "--valid-subset", "valid", "--max-tokens", "400"),
    )
    assert "valid on 'valid' subset | loss" in result.stdout + result.stderr


@pytest.mark.parametrize("arch", ARCHS)
def test_from_pretrained_scores_as_a_full_forward_pass(data, trained, arch):
    """Beam search with its caches and reordering against one pass over the whole hypothesis."""
    from fairseq.models.transformer import TransformerModel

    import shape_fairseq.models  # noqa: F401 - registers the models

    path = trained(arch)
    hub = TransformerModel.from_pretrained(str(path.parent), path.name, str(data)).eval()
    source = hub.encode("w1 w2 w3 w4 w5 w6 w7")
    hypotheses = hub.generate([source], beam=4)[0]
    assert len(hypotheses) == 4
    for hypothesis in hypotheses:
        tokens = hypothesis["tokens"][None]
        shifted = torch.cat([tokens[:, -1:], tokens[:, :-1]], dim=1)  # the decoder starts with </s>
        with torch.no_grad():
            logits, _ = hub.models[0](source[None], None, shifted)
        scores = logits.log_softmax(-1).gather(2, tokens[..., None]).flatten()
        torch.testing.assert_close(scores, hypothesis["positional_scores"], atol=1e-4, rtol=1e-4)


def test_relative_tables_change_what_a_reloaded_checkpoint_translates(data, trained, tmp_path):
    """Guards against fairseq 0.12.2's encoder fast path, which would ignore them."""
    path = trained("transformer_rpe_tiny")
    state = torch.load(path)
    for name, weights in state["model"].items():
        if name.startswith("encoder.") and "relative_" in name:
            weights.mul_(-4).add_(0.5)
    torch.save(state, tmp_path / "changed.pt")
    outputs = [
        run(
            "fairseq-generate",
            *(data, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--max-tokens", "400"),
            *("--required-batch-size-multiple", "1"),
        ).stdout
        for checkpoint in (path, tmp_path / "changed.pt")
    ]
    before, after = map(translations, outputs)
    assert len(before) == len(after) == 20
    assert before != after


def test_hydra_train_goes_as_far_as_for_fairseqs_own_transformer(data, tmp_path):
    """It works in fairseq-fixed; in fairseq 0.12.2 it knows no `transformer` at all."""
    outcomes = {}
    for model in ("transformer", "transformer_shape", "transformer_rpe"):
        save = tmp_path / model
        sizes = (
            f"+model.{side}_{size}={value}"
            for side in ("encoder", "decoder")
            for size, value in (("embed_dim", 16), ("ffn_embed_dim", 16), ("layers", 1))
        )
        result = run(
            "fairseq-hydra-train",
            *(f"common.user_dir={USER_DIR}", "common.cpu=true", f"+model._name={model}", *sizes),
            *(
                "task=translation",
                f"task.data={data}",
                "task.source_lang=en",
                "task.target_lang=de",
            ),
            *("criterion=cross_entropy", "optimizer=adam", "lr_scheduler=fixed"),
            *("optimization.lr=[0.003]", "optimization.max_update=2", "dataset.max_tokens=400"),
            *(f"checkpoint.save_dir={save}", f"hydra.run.dir={tmp_path}"),
            check=False,
        )
        outcomes[model] = result.returncode == 0 and (save / "checkpoint_last.pt").is_file()
    assert outcomes["transformer_shape"] == outcomes["transformer_rpe"] == outcomes["transformer"]
    assert outcomes["transformer"] == (sys.version_info >= (3, 11))


def test_installed_elsewhere_it_tells_its_user_dir(data, tmp_path):
    site = tmp_path / "site"
    source = tmp_path / "source"  # pip builds in the folder it installs from
    for name in ("shape_fairseq",):
        shutil.copytree(REPOSITORY / name, source / name)
    for name in ("setup.py", "README.md"):
        shutil.copy(REPOSITORY / name, source)
    run(
        "pip",
        *("install", "-q", "--no-deps", "--no-build-isolation", "--target", site, source),
    )
    printed = processes.shape_fairseq("user-dir", cwd=tmp_path, env={"PYTHONPATH": str(site)})
    user_dir = printed.stdout.strip()
    assert user_dir == str(site / "shape_fairseq")
    save = tmp_path / "save"
    train(data, save, "transformer_shape_tiny", 2, "--user-dir", user_dir, PYTHONPATH="")
    assert (save / "checkpoint_last.pt").is_file()
