import pytest
import torch

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import averaging


def save_checkpoint(folder, updates: int, embedding: float, bias: float) -> None:
    shared = torch.full((3, 2), embedding, dtype=torch.float16)
    model = {
        "encoder.embed_tokens.weight": shared,
        "decoder.embed_tokens.weight": shared,
        "decoder.bias": torch.full((5,), bias),
        "encoder.version": torch.tensor([3.0]),
    }
    extra = {"previous_training_time": 1.0 * updates}
    state = {"model": model, "extra_state": extra, "last_optimizer_state": {"big": 1}}
    torch.save(state, folder / f"checkpoint_1_{updates}.pt")


def test_the_newest_checkpoints_are_averaged_in_fp32(tmp_path):
    for updates, value in ((5, 100.0), (90, 1.0), (100, 2.0)):
        save_checkpoint(tmp_path, updates, embedding=value, bias=10 * value)
    output = tmp_path / "average.pt"
    averaging.main([str(tmp_path), "--number", "2", "--output", str(output)])
    state = torch.load(output)
    model = state["model"]
    assert torch.equal(model["encoder.embed_tokens.weight"], torch.full((3, 2), 1.5))
    assert torch.equal(model["decoder.embed_tokens.weight"], torch.full((3, 2), 1.5))
    assert torch.equal(model["decoder.bias"], torch.full((5,), 15.0))
    assert state["extra_state"]["averaged_updates"] == [90, 100]
    assert state["extra_state"]["previous_training_time"] == 100.0
    assert state["extra_state"]["parameters"] == 3 * 2 + 5
    assert "last_optimizer_state" not in state
    with pytest.raises(UserError, match="exists already"):
        averaging.main([str(tmp_path), "--number", "3", "--output", str(output)])


def test_too_few_or_damaged_checkpoints_are_refused(tmp_path):
    save_checkpoint(tmp_path, 5, 1.0, 1.0)
    output = tmp_path / "average.pt"
    with pytest.raises(UserError, match="has 1 checkpoints and 10 are to be averaged"):
        averaging.main([str(tmp_path), "--output", str(output)])
    (tmp_path / "checkpoint_1_6.pt").write_bytes(b"half a file")
    with pytest.raises(UserError, match="checkpoint_1_6.pt is no checkpoint"):
        averaging.main([str(tmp_path), "--number", "2", "--output", str(output)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_1_5.pt",
        "checkpoint_1_6.pt",
    ]
