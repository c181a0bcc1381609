import sys

import pytest

from benchmarks import translation


def test_hypotheses_are_sorted_and_detokenized():
    output = "S-1\tx\nH-10\t-0.1\tein Ha@@ us .\nH-2\t-0.2\tgut <unk>\nD-2\tz\n"
    assert translation.hypotheses(output, "de") == ["gut <unk>", "ein Haus."]


def test_a_short_text_begins_again(tmp_path):
    (tmp_path / "text").write_bytes("ä\nb\n".encode())
    assert translation.head(tmp_path / "text", tmp_path / "out", 3) == ["ä", "b", "ä"]
    assert (tmp_path / "out").read_bytes() == "ä\nb\nä\n".encode()


def test_a_failing_command_is_one_line():
    with pytest.raises(SystemExit, match=f"^error: {sys.executable} failed: .*oh no"):
        translation.command(sys.executable, "-c", "import sys; sys.exit('oh no')")
    assert translation.command(sys.executable, "-c", "print(1)") == "1\n"


def test_each_tool_is_measured_against_fairseq_generate(tmp_path, capsys):
    texts = {"fairseq-generate": ["a b c d", "e f g h"], "translate": ["a b c d", "e f g x"]}
    calls = []

    def tool(name):
        return lambda encoded, raw: calls.append((name, raw)) or texts[name]

    inputs, one = (tmp_path / "text", "all"), (tmp_path / "one", "one")
    measured = translation.measure({name: tool(name) for name in texts}, inputs, one, rounds=2)
    assert calls == [(name, raw) for name in texts for raw in ("one", "all")] * 2
    measured = {name: ([2.0, 3.0], [1.0, 1.0], output) for name, (_, _, output) in measured.items()}
    rows = translation.report("ape", measured, ["a b c d", "e f g h"])
    assert [row["identical"] for row in rows] == [100.0, 50.0]
    assert [row["sentences_per_second"] for row in rows] == [2.0, 2.0]
    assert rows[0]["bleu"] == 100 > rows[1]["bleu"]
    assert capsys.readouterr().out.count("| ape |") == 2
