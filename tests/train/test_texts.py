"""Texts into rows, and the tokenizer that is made of them: every token once, the same bytes each time, nothing of what
is held out."""

import itertools
import json

import pytest
from tokenizers import Tokenizer

from tests.train import cluster, texts
from train.__main__ import main
from train.data import left_out_in_words
from train.data.rows import open_rows
from train.data.texts import Texts, held_out, pieces
from train.errors import BadInput
from train.plan.settings.read_settings import load_config
from train.recipes.pretrain.rows import RowStream, prepare


def made(folder, out, say=lambda _: None, **changes):
    asked = {"recipe": "pretrain", "vocab_size": 400, "max_seq_length": 48, "dataset": str(folder), **changes}
    return prepare(load_config(asked), say, out=str(out))


def folder_of(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return texts.write(tmp_path_factory.mktemp("texts") / "texts", 20)


@pytest.mark.parametrize("tokenizer", ["bpe", "bytes", "chars", "tiny"])
def test_the_same_texts_give_the_same_bytes(folder, tmp_path, tokenizer):
    own = {"vocab_size": 0} if tokenizer in ("bytes", "tiny") else {}
    first, second = (made(folder, tmp_path / name, tokenizer=tokenizer, **own) for name in "ab")
    assert files_of(first) == files_of(second) and "tokenizer/tokenizer.json" in files_of(first)


@pytest.mark.parametrize("tokenizer", ["bpe", "bytes"])
def test_every_token_is_there_once_and_says_the_text_again(folder, tmp_path, tokenizer):
    rows_folder = made(folder, tmp_path / "rows", tokenizer=tokenizer, vocab_size=400 if tokenizer == "bpe" else 0)
    mark = Tokenizer.from_file(str(rows_folder / "tokenizer/tokenizer.json"))
    found = set()
    for split in ("train", "eval"):
        rows, whole = open_rows(rows_folder, split), []
        for row in range(len(rows)):
            starts = rows.samples[rows.rows[row] : rows.rows[row + 1] + 1]
            for start, end in itertools.pairwise(starts):
                piece = rows.tokens[start:end].tolist()
                assert rows.trained[start] == 0 and rows.trained[start + 1 : end].all()
                goes_on = whole and whole[-1] != 0 and piece[0] == whole[-1]
                whole += piece[1:] if goes_on else piece
            assert starts[-1] - starts[0] <= 48
        said = mark.decode(whole, skip_special_tokens=False).split("<|endoftext|>")
        found |= {text for text in said if text}
    assert found == {path.read_text() for path in folder.iterdir()}


def test_rows_are_full_and_targets_are_all_but_first_marks(folder, tmp_path):
    rows = open_rows(made(folder, tmp_path / "rows"))
    lengths = [rows.token_count([row]) for row in range(len(rows) - 1)]
    assert min(lengths) >= 47 and max(lengths) == 48


def test_a_long_text_goes_on_in_the_next_row_with_the_last_token_of_the_row_before():
    stream = RowStream(5)
    rows = [*stream.add([0, *range(1, 9), 0]), *stream.add([0, 7, 0]), *stream.finish()]
    assert [[piece for piece, _ in row] for row in rows] == [[[0, 1, 2, 3, 4]], [[4, 5, 6, 7, 8]], [[8, 0], [0, 7, 0]]]


def test_one_free_place_is_left_free():
    stream = RowStream(4)
    rows = [*stream.add([0, 5, 0]), *stream.add([0, 6, 0]), *stream.finish()]
    assert [[piece for piece, _ in row] for row in rows] == [[[0, 5, 0]], [[0, 6, 0]]]


def test_the_tokenizer_knows_nothing_of_what_is_held_out(folder, tmp_path):
    config = load_config({"recipe": "pretrain", "dataset": str(folder), "eval_fraction": 0.2})
    files = sorted(folder.iterdir())
    away = held_out(Texts(files, config, lambda _: None), 0.2)
    assert away
    (tmp_path / "other").mkdir()
    for number, file in enumerate(files):
        if number not in away:
            (tmp_path / "other" / file.name).write_text(file.read_text())
    whole = made(folder, tmp_path / "whole", eval_fraction=0.2)
    kept = made(tmp_path / "other", tmp_path / "kept", eval_fraction=0.0)
    assert (whole / "tokenizer/tokenizer.json").read_bytes() == (kept / "tokenizer/tokenizer.json").read_bytes()
    assert (whole / "train/tokens.bin").read_bytes() == (kept / "train/tokens.bin").read_bytes()


def test_of_few_texts_one_is_held_out_all_the_same(tmp_path):
    data = folder_of(tmp_path / "two", a="one text about cats " * 20, b="another about dogs " * 20)
    index = json.loads((made(data, tmp_path / "rows") / "index.json").read_text())
    assert index["splits"]["train"]["rows"] and index["splits"]["eval"]["rows"]


def test_characters_beyond_the_vocabulary_become_one_token(tmp_path):
    data = folder_of(tmp_path / "data", a="aaaa bbb cc d", b="aaaa bbb cc e")
    rows = made(data, tmp_path / "rows", tokenizer="chars", vocab_size=6, eval_fraction=0)
    tokenizer = Tokenizer.from_file(str(rows / "tokenizer/tokenizer.json"))
    assert json.loads((rows / "index.json").read_text())["vocabulary"] == 6
    assert tokenizer.decode(tokenizer.encode("abba c").ids) == "abba c"
    assert tokenizer.encode("d").tokens == ["<unk>"]


def test_a_file_alone_is_cut_between_paragraphs(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("".join(f"paragraph {number} {'x' * 90}\n\n" for number in range(100)))
    parts = [text.text for text in pieces(file, 1000)]
    assert "".join(parts) == file.read_text() and len(parts) > 5
    assert all(part.endswith("\n\n") for part in parts)


def test_records_are_texts_too(tmp_path):
    lines = [{"text": f"a note about number {number}"} for number in range(30)]
    rows = made(cluster.write_records(tmp_path / "notes.jsonl", lines), tmp_path / "rows", eval_fraction=0)
    tokenizer = Tokenizer.from_file(str(rows / "tokenizer/tokenizer.json"))
    said = tokenizer.decode(open_rows(rows).tokens.tolist())
    assert all(f"number {number}" in said for number in (0, 29))


def test_bad_records_are_counted_among_all_and_the_first_is_named(tmp_path):
    data = folder_of(tmp_path / "data")
    lines = [json.dumps({"text": f"a note about number {number}"}) for number in range(20)]
    (data / "notes.jsonl").write_text("\n".join([*lines[:5], '{"text": "cut o', *lines[5:], "7", "{}"]) + "\n")
    rows = made(data, tmp_path / "rows")
    (said,) = left_out_in_words.words(json.loads((rows / "index.json").read_text()))
    assert said.startswith("data: 3 of 23 records are skipped, the first: notes.jsonl line 6: ")


def test_what_is_not_utf_8_is_named_and_counted(tmp_path):
    data = folder_of(tmp_path / "data", **{name: f"text {name} " * 30 for name in "abc"})
    (data / "old.txt").write_bytes("Straße".encode("latin1"))
    with pytest.raises(BadInput, match=r"1 bad texts of 4; the first: old\.txt: not UTF-8"):
        made(data, tmp_path / "rows")
    said = []
    assert len(open_rows(made(data, tmp_path / "rows", said.append, max_bad=1)))
    assert "skipped   old.txt: not UTF-8" in said


def test_prepare_is_a_command(folder, tmp_path, capsys):
    words = ["prepare", "--recipe", "pretrain", "--dataset", str(folder), "--vocab-size", "400"]
    words += ["--max-seq-length", "48"]
    assert main([*words, "--out", str(tmp_path / "rows"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["vocabulary"] == 400 and found["splits"]["train"]["rows"] > 20
    assert main(["prepare", "--dataset", str(folder), "--out", str(tmp_path / "x")]) == 2
    assert "--model is missing" in capsys.readouterr().err
