import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.evaluation import max_shift, results


def test_the_best_shift_is_reported(make_result, tmp_path, capsys):
    paths = []
    for shift, bleu in ((10, 20.0), (40, 25.0), (500, 25.0)):
        paths.append(str(tmp_path / f"{shift}.json"))
        results.write(make_result("extrapolate", "shape", bleu=bleu, max_shift=shift), paths[-1])
    max_shift.main(paths)
    assert capsys.readouterr().out.splitlines() == [
        "max-shift 10: BLEU 21.50 on valid",
        "max-shift 40: BLEU 26.50 on valid",
        "max-shift 500: BLEU 26.50 on valid",
        "best: 40",
    ]
    with pytest.raises(UserError, match="give one of them"):
        max_shift.main([paths[0], paths[0]])
