import argparse

import pytest

from shape_fairseq.command_line import Parser, positive


@pytest.fixture
def parser():
    made = Parser(prog="shape-fairseq cook", description="Cook.", example="egg --minutes 4")
    made.add_argument("food", choices=("egg", "rice"))
    made.add_argument("--minutes", type=positive, default=5)
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "the following arguments are required: food"),
        ("soup", "argument food: invalid choice: 'soup'"),
        ("egg --minutes 0", "argument --minutes: 0 is not a whole number of at least 1"),
        ("egg --minutes", "argument --minutes: expected one argument"),
        ("egg --hours 1", "unrecognized arguments: --hours 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(parser, capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(words.split())
    output, error = capsys.readouterr()
    assert stop.value.code == 2 and output == ""
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
    assert error.endswith(" (shape-fairseq cook --help shows all options)\n")


def test_help_ends_with_an_example_that_works(parser, capsys):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--help"])
    assert stop.value.code == 0
    *_, title, example = capsys.readouterr().out.splitlines()
    assert (title, example) == ("example:", "  shape-fairseq cook egg --minutes 4")
    args = parser.parse_args(example.split()[2:])
    assert (args.food, args.minutes) == ("egg", 4)
    assert "example" not in Parser().format_help()


def test_numbers_from_1_on_are_taken():
    assert [positive(text) for text in ("1", "007", "12345678901")] == [1, 7, 12345678901]
    for text in ("0", "-1", "+1", "1.0", "1e3", "", " 1", "one", "²"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number of at least 1"):
            positive(text)
