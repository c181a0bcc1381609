"""Raw text in, raw text out: in order, in bounded memory, whatever the lines are."""

import gzip
import io
import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shape_fairseq.errors import UserError
from shape_fairseq.production import translate
from shape_fairseq.production.translate import (
    Model,
    batches,
    bounded_chunks,
    cut,
    lines_of,
    translate_lines,
)
from shape_fairseq.search import Search
from shape_fairseq.text.bpe import Encoder
from shape_fairseq.text.tokenizer import tokenize

SUBWORDS = st.lists(st.sampled_from(["a", "b@@", ".", "<sep>"]), max_size=60)
SEARCH = Search(beam=2, lenpen=1.0, max_len_a=0.5, max_len_b=3)


@pytest.fixture
def folder(export_model):
    return export_model("transformer_rpe_tiny")


@pytest.fixture
def model(folder):
    return Model(folder, threads=2)


@given(SUBWORDS, st.integers(1, 20))
def test_pieces_are_short_enough_and_nothing_is_lost(subwords, limit):
    pieces = cut(subwords, limit)
    assert sum(pieces, []) == subwords
    assert all(0 < len(piece) <= limit for piece in pieces)


def test_lines_are_cut_after_sentences_or_else_after_words():
    assert cut(["a", "b", ".", "c", "d", "e"], 4) == [["a", "b", "."], ["c", "d", "e"]]
    assert cut(["a", "b@@", "c", "d@@", "e"], 4) == [["a", "b@@", "c"], ["d@@", "e"]]
    assert cut(["a@@", "a@@", "a@@", "a"], 2) == [["a@@", "a@@"], ["a@@", "a"]]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 100), st.integers(1, 10))
def test_batches_hold_every_sequence_once_and_fit(lengths, max_tokens, step):
    limits = [length // step for length in lengths]
    made = list(batches(lengths, limits, max_tokens))
    assert sorted(sum(made, [])) == list(range(len(lengths)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= max_tokens
        assert len({limits[i] for i in batch}) == 1
    spans = [(min(lengths[i] for i in b), max(lengths[i] for i in b)) for b in made]
    assert all(later[1] <= earlier[0] for earlier, later in zip(spans, spans[1:], strict=False))


def test_a_line_has_the_same_translation_whatever_stands_around_it(model):
    """Untrained models hardly ever end by themselves, so every limit is reached."""
    words = random.Random(1)
    lines = [
        " ".join(f"w{words.randrange(36)}" for _ in range(words.randint(1, 12))).encode()
        for _ in range(60)
    ]
    lines[5] = lines[20] = b""
    lines[6] = b" \t "
    together = list(translate_lines(model, lines, SEARCH))
    assert len(together) == len(lines) and len(set(together)) > 20
    assert [number for number, text in enumerate(together) if not text] == [5, 6, 20]
    assert together == list(translate_lines(model, lines, SEARCH, chunk_lines=1))
    assert together == list(translate_lines(model, lines, SEARCH, chunk_lines=7, batch_tokens=20))
    order = words.sample(range(60), 60)
    shuffled = list(translate_lines(model, [lines[index] for index in order], SEARCH))
    assert shuffled == [together[index] for index in order]


def test_the_memory_is_bounded_in_lines_and_in_bytes(monkeypatch):
    monkeypatch.setattr(translate, "CHUNK_BYTES", 100)
    lines = [b"x" * size for size in (40, 40, 40, 300, 1, 1, 1, 1)]
    sizes = [[len(line) for _, line in chunk] for chunk in bounded_chunks(lines, 3)]
    assert sizes == [[40, 40], [40], [300], [1, 1, 1], [1]]
    assert [n for chunk in bounded_chunks(lines, 3) for n, _ in chunk] == list(range(1, 9))
    monkeypatch.setattr(translate, "LONGEST_LINE", 3 << 20)
    stream = io.BytesIO(b"one\n" + b"x" * (4 << 20))
    read = lines_of(stream)
    assert next(read) == b"one"
    with pytest.raises(UserError, match="line 2 has more than 3 MB"):
        next(read)


def test_subwords_are_those_of_data_prep(model, folder):
    text = "w3, w12 & “w7”\u2028w1."
    tokens = tokenize(text.replace("\u2028", " "), "en")
    assert (
        model.encode(text) == Encoder(folder / "codes").encode([tokens.encode()]).decode().split()
    )
    assert model.encode("  ") == []


def test_joined_sentences_stay_joined_where_the_model_knows_the_separator(model):
    assert "<sep>" not in model.encode("w1 <sep> w2")
    model.knows_separator = True
    assert model.encode("w1 <sep> w2") == ["w1", "<sep>", "w2"]
    assert model.decode([["w1", "<sep>", "w2"]]) == "w1 <sep> w2"


def test_very_long_and_broken_lines_do_not_end_the_run(model, caplog):
    long = b"w1 w2 w3 . " * 400
    lines = [b"w1", long, b"w2 \xff", b"w2 w3"]
    texts = list(translate_lines(model, lines, SEARCH))
    assert len(texts) == 4 and all(texts)
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == [
        "line 2: 1,600 subwords, more than 1,023; translated in 2 pieces",
        "line 3: not valid UTF-8, the wrong bytes are replaced",
    ]
    caplog.clear()
    list(translate_lines(model, [b"w1 w2 w3"], SEARCH, limit=2))
    assert "translated in 2 pieces" in caplog.text


def test_the_input_is_a_stream(model):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield b"w1 w2"

    texts = translate_lines(model, endless(), SEARCH, chunk_lines=4)
    for _ in range(9):
        next(texts)
    assert read == 16
    read = 0
    next(translate_lines(model, endless(), SEARCH, chunk_lines=1))
    assert read == 1  # an answer to each line, for a person or a program that waits for it


def test_files_instead_of_pipes_appear_when_complete(folder, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"w1 w2\n\nw3")
    arguments = [str(folder), "--input", str(source), "--output", str(output), "--beam", "1"]
    translate.main(arguments)
    lines = output.read_text().split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[0] and lines[2] and lines[3] == ""
    with pytest.raises(UserError, match="exists already"):
        translate.main(arguments)


def test_a_packed_text_that_is_cut_off_is_named(folder, tmp_path):
    source = tmp_path / "in.gz"
    for content in (gzip.compress(b"w1 w2\n" * 99)[:-9], b"no gzip"):
        source.write_bytes(content)
        with pytest.raises(UserError, match=r"in\.gz is damaged .*: download or pack it again"):
            translate.main([str(folder), "--input", str(source), "--output", str(tmp_path / "out")])
        assert not (tmp_path / "out").exists()


def damage(folder, name, content):
    path = folder / name
    path.write_bytes(content if content is not None else path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.bin", None, "model.bin is missing or damaged"),
        ("codes", b"a b 1\n", "codes is missing or damaged"),
        ("shape_fairseq.json", b"{", "shape_fairseq.json is damaged"),
        ("shape_fairseq.json", b"[]", "shape_fairseq.json is damaged"),
        ("shape_fairseq.json", b'{"format": 99, "files": {}}', "has format 99"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(folder, name, content, message):
    damage(folder, name, content)
    with pytest.raises(UserError, match=message) as error:
        Model(folder)
    assert "export the model again" in str(error.value) and "\n" not in str(error.value)


def test_a_model_that_ctranslate2_cannot_load_is_refused_in_one_line(folder):
    path = folder / "shape_fairseq.json"
    settings = json.loads(path.read_text())
    del settings["files"]["model.bin"]
    path.write_text(json.dumps(settings))
    damage(folder, "model.bin", None)
    with pytest.raises(UserError, match="CTranslate2 cannot load") as error:
        Model(folder)
    assert "\n" not in str(error.value)


def test_another_folder_is_no_model(tmp_path):
    with pytest.raises(UserError, match="make .* with shape-fairseq export"):
        Model(tmp_path / "none")


def test_a_search_that_ctranslate2_refuses_is_one_line(model):
    with pytest.raises(UserError, match="--beam and --max-len-b must be at least 1"):
        list(translate_lines(model, [b"w1"], Search(beam=0)))


def test_help_and_translating_need_neither_torch_nor_fairseq(folder):
    program = """
import sys
from shape_fairseq.production import export, translate
try:
    export.main(["--help"])
except SystemExit:
    pass
translate.main([sys.argv[1], "--beam", "1", "--max-len-a", "0", "--max-len-b", "5"])
assert not {"torch", "fairseq"} & set(sys.modules), "imported"
"""
    result = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        input="w1 w2\n",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "--tokens" in result.stdout and len(result.stdout.splitlines()[-1].split()) > 1
