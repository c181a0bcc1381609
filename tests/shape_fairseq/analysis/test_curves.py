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
