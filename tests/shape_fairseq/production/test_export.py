"""What cannot be exported is refused, and nothing is overwritten."""

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.production import export
from tests.shape_fairseq.conftest import vocabulary


def refusal(*arguments: object) -> str:
    """The one line with which an export ends."""
    with pytest.raises(UserError) as error:
        export.main([str(argument) for argument in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_input_ends_in_one_line_and_writes_nothing(save_checkpoint, data_folder, tmp_path):
    path, output = save_checkpoint("transformer_tiny"), tmp_path / "out"
    to_ct2 = ("--to", "ctranslate2", output)
    assert "choose fairseq or ctranslate2" in refusal(path, "--to", "onnx", output)
    assert "unknown quantization 'int7'" in refusal(path, *to_ct2, "--quantization", "int7")
    assert "--beam" in refusal(path, *to_ct2, "--beam", 0)
    assert "missing" in refusal(tmp_path / "no.pt", *to_ct2)
    assert "give --data" in refusal(path, *to_ct2, "--data", tmp_path / "nowhere")
    (data_folder / "bpe" / "codes").rename(data_folder / "codes")
    assert "give --codes" in refusal(path, *to_ct2)
    codes = ("--codes", data_folder / "codes")
    assert "not fastBPE codes" in refusal(path, *to_ct2, "--codes", data_folder / "dict.txt")
    vocabulary(30).save(str(data_folder / "dict.txt"))
    assert "the dictionaries have 30 and 30" in refusal(path, *to_ct2, *codes)
    assert not output.exists() and not list(tmp_path.glob("*.partial"))


def test_nothing_is_overwritten(save_checkpoint, tmp_path):
    output = tmp_path / "out"
    output.write_text("mine")
    for target in ("fairseq", "ctranslate2"):
        message = refusal(save_checkpoint("transformer_tiny"), "--to", target, output)
        assert "exists already" in message
    assert output.read_text() == "mine"
