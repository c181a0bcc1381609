"""What a person sets in the environment is read as text, and never as a program."""

import pytest

from shape_fairseq.errors import UserError
from shape_fairseq.experiment.variables import Variables

HOSTILE = ["a[$(touch x)]", "$(id)", "1 + 1", "-1", "0x10", "1e3", "01", "٣", "1\n2", "9" * 30]


@pytest.mark.parametrize("text", HOSTILE)
def test_only_digits_are_a_whole_number(text):
    with pytest.raises(UserError, match="UPDATES must be a whole number of at least 1"):
        Variables({"UPDATES": text}).whole_number("UPDATES", 5)


def test_an_empty_variable_is_one_that_is_not_set():
    variables = Variables({"UPDATES": "", "DRY_RUN": "", "EXTRA": ""})
    assert variables.whole_number("UPDATES", 5) == 5
    assert not variables.switch("DRY_RUN") and variables.words("EXTRA") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--lr 0.5\n--adam-betas '(0.9, 0.98)'", ["--lr", "0.5", "--adam-betas", "(0.9, 0.98)"]),
        ('--a "b c"\t--d\\ e', ["--a", "b c", "--d e"]),
        ("--x $(touch y) `z` $HOME", ["--x", "$(touch", "y)", "`z`", "$HOME"]),
    ],
)
def test_words_are_split_as_a_shell_would_and_nothing_is_run(text, words):
    assert Variables({"EXTRA": text}).words("EXTRA") == words


@pytest.mark.parametrize("text", ["--a 'b", "--a 'b\nc'"])
def test_words_that_cannot_be_split_are_refused(text):
    with pytest.raises(UserError, match="EXTRA"):
        Variables({"EXTRA": text}).words("EXTRA")


def test_a_switch_is_0_or_1():
    assert Variables({"DRY_RUN": "1"}).switch("DRY_RUN")
    assert not Variables({"DRY_RUN": "0"}).switch("DRY_RUN", default=True)
    with pytest.raises(UserError, match="DRY_RUN must be 0 or 1, not 'yes'"):
        Variables({"DRY_RUN": "yes"}).switch("DRY_RUN")


def test_a_folder_has_no_colon():
    with pytest.raises(UserError, match="DATA must be a path without colons"):
        Variables({"DATA": "a:b"}).folder("DATA")
