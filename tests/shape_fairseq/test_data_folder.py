import hashlib

import pytest

from shape_fairseq import data_folder
from shape_fairseq.errors import UserError


@pytest.fixture
def data(tmp_path):
    (tmp_path / "parameters.txt").write_text("DATA=demo\nNAMES=a=b\n")
    (tmp_path / "dict.txt").write_text("ein 9\n")
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "subsets.tsv").write_text(
        "subset\tparts\tsacrebleu\nvalid\tnewstest2010 newstest2011\t\ntest\tnewstest2014\t\n"
        "newstest2010\tnewstest2010\twmt10\nnewstest2014\tnewstest2014\twmt14/full\n"
    )
    return tmp_path


def test_the_hash_is_that_of_parameters_and_dictionary(data):
    expected = hashlib.sha256(b"DATA=demo\nNAMES=a=b\nein 9\n").hexdigest()[:16]
    assert data_folder.data_hash(data) == expected
    (data / "dict.txt").unlink()
    with pytest.raises(UserError, match=r"dict\.txt is missing"):
        data_folder.data_hash(data)


def test_the_shell_can_ask_what_valid_is_made_of(data, commands):
    result = commands.module("shape_fairseq.data_folder", data, "valid")
    assert result.stdout == "newstest2010 newstest2011\n"
    result = commands.module("shape_fairseq.data_folder", data / "other", "valid")
    assert result.returncode == 1 and "subsets.tsv is missing" in result.stderr
    assert result.stderr.count("\n") == 1


def test_parameters_may_hold_an_equals_sign(data):
    assert data_folder.read_parameters(data) == {"DATA": "demo", "NAMES": "a=b"}


def test_the_languages_are_those_of_the_parameters(data):
    assert data_folder.languages(data) == ("en", "de")
    with open(data / "parameters.txt", "a") as file:
        file.write("SOURCE_LANG=fr\nTARGET_LANG=cs\n")
    assert data_folder.languages(data) == ("fr", "cs")
    paths = data_folder.binarized_paths(data, "scaling_nmt", "train")
    assert [str(path.relative_to(data)) for path in paths] == [
        "vanilla/train.fr-cs.fr.idx",
        "vanilla/train.fr-cs.cs.idx",
    ]


def test_subsets_have_groups_and_names(data):
    subsets = data_folder.read_subsets(data)
    assert subsets.groups == {"valid": ["newstest2010", "newstest2011"], "test": ["newstest2014"]}
    assert subsets.names == ["newstest2010", "newstest2014"]
    assert subsets.sacrebleu_names == {"newstest2010": "wmt10", "newstest2014": "wmt14/full"}


def test_a_damaged_folder_is_refused(data):
    with pytest.raises(UserError, match="no complete data-bin interpolate"):
        data_folder.check_data(data, "interpolate")
    (data / "statistics" / "subsets.tsv").write_text("subset\tparts\tsacrebleu\nvalid\n")
    with pytest.raises(UserError, match="three columns, not 'valid'"):
        data_folder.read_subsets(data)
    (data / "parameters.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="damaged"):
        data_folder.languages(data)
    with pytest.raises(UserError, match="missing"):
        data_folder.check_data(data / "nowhere", "vanilla")
