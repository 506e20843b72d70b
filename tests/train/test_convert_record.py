"""Files and their formats: what is read, what is detected, and what a bad record gets."""

import csv
import io
import json
from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from train.data import parse_files
from train.data.convert_record import BadRecord, convert, detect
from train.data.parse_files import Source
from train.errors import BadInput


def said(question, answer):
    return ({"role": "user", "content": question}, {"role": "assistant", "content": answer})


ANSWER = {"from": "gpt", "value": "A"}
SYSTEM = {"role": "system", "content": "S"}
DEVELOPER = {"role": "developer", "content": "D"}
ASKED = said("Q", "A")


@pytest.mark.parametrize(
    ("name", "record", "messages"),
    [
        ("alpaca", {"instruction": "Q", "output": "A"}, ASKED),
        ("alpaca", {"instruction": "Q", "input": "I", "output": "A"}, said("Q\n\nI", "A")),
        ("chat", {"messages": list(ASKED)}, ASKED),
        ("chat", {"conversations": list(ASKED)}, ASKED),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, ASKED[1]]}, ASKED),
        ("sharegpt", {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]}, ASKED),
        ("prompt", {"prompt": "Q", "completion": "A"}, ASKED),
        ("prompt", {"prompt": [ASKED[0]], "completion": [ASKED[1]]}, ASKED),
        ("prompt", {"question": "Q", "answer": "A", "id": 7}, ASKED),
        ("alpaca", {"instruction": "Q", "context": "", "response": "A", "category": "open_qa"}, ASKED),
        ("alpaca", {"instruction": "Q", "context": "I", "response": "A"}, said("Q\n\nI", "A")),
        ("alpaca", {"instruction": "Q", "input": "I", "response": "A"}, said("Q\n\nI", "A")),
        ("alpaca", {"instruction": "Q", "input": "", "context": "I", "output": "A"}, said("Q\n\nI", "A")),
        ("alpaca", {"instruction": "2 + 1?", "output": 3}, said("2 + 1?", "3")),
        ("prompt", {"question": "Half?", "answer": 0.5}, said("Half?", "0.5")),
        (
            "sharegpt",
            {"conversations": [{"from": "gpt", "value": "Hello!"}, {"from": "human", "value": "Q"}, ANSWER]},
            ({"role": "assistant", "content": "Hello!"}, *ASKED),
        ),
        ("chat", {"messages": [{"role": "developer", "content": "D"}, *ASKED]}, (DEVELOPER, *ASKED)),
        ("chat", {"system": "S", "messages": [DEVELOPER, *ASKED]}, (DEVELOPER, *ASKED)),
        ("chat", {"system": "S", "messages": list(ASKED)}, (SYSTEM, *ASKED)),
        ("prompt", {"system": "S", "prompt": "Q", "completion": "A"}, (SYSTEM, *ASKED)),
        ("prompt", {"system": "S", "prompt": [ASKED[0]], "completion": [ASKED[1]]}, (SYSTEM, *ASKED)),
        ("alpaca", {"system": "S", "instruction": "Q", "output": "A"}, (SYSTEM, *ASKED)),
        ("alpaca", {"instruction": "Q", "output": "A", "history": [["P", "B"]]}, (*said("P", "B"), *ASKED)),
        ("prompt", {"prompt": "Q", "response": "A", "history": [["P", "B"]]}, (*said("P", "B"), *ASKED)),
        ("prompt", {"prompt": "Q", "response": "A", "history": "of Rome"}, ASKED),
        ("alpaca", {"instruction": "Double it.", "input": 0, "output": 0}, said("Double it.\n\n0", "0")),
    ],
)
def test_each_format_is_detected_and_becomes_a_conversation(name, record, messages):
    assert detect(record) == name
    assert convert(name, record).messages == messages


def test_a_number_of_any_length_is_an_answer():
    assert convert("prompt", {"prompt": "Q", "completion": 10**399}).messages[1]["content"] == "1" + 399 * "0"


def test_plain_text_stays_text():
    assert detect({"text": "once"}) == "text"
    assert convert("text", {"text": "once"}).text == "once"
    assert detect({"titel": "x"}) is None


@pytest.mark.parametrize(
    ("name", "record", "reason"),
    [
        ("alpaca", {"instruction": "Q", "output": " "}, "the answer is empty"),
        ("alpaca", {"instruction": "Q"}, "'output' is missing"),
        ("alpaca", {"instruction": "Q", "output": [3]}, "not text but list"),
        ("alpaca", {"instruction": "Q", "output": float("nan")}, "not text but float"),
        ("alpaca", {"instruction": "Q", "input": float("nan"), "output": "A"}, "'input' is not text but float"),
        ("alpaca", {"instruction": "Q", "context": ["I"], "response": "A"}, "'context' is not text but list"),
        ("alpaca", {"instruction": "Q", "output": "half: \ud83d"}, r"half a character \(\\ud83d"),
        ("text", {"text": "\udc00 half"}, "half a character"),
        ("alpaca", {"instruction": "", "output": "A"}, "the question is empty"),
        ("chat", {"messages": []}, "empty or no list"),
        ("chat", {"text": "x"}, "empty or no list"),
        ("chat", {"messages": [ASKED[0]]}, "no answer"),
        ("chat", {"messages": [ASKED[1]]}, "no question"),
        ("chat", {"messages": [{"role": "user"}]}, "lacks 'role' or 'content'"),
        ("chat", {"messages": [ASKED[0], {"role": "assistant", "content": None}]}, "not text but NoneType"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "other than text"),
        ("sharegpt", {"conversations": [{"from": "martian", "value": "x"}]}, "role 'martian' is unknown"),
        ("sharegpt", {"text": "x"}, "empty or no list"),
        ("prompt", {"prompt": "Q"}, "'completion' is missing"),
        ("prompt", {}, "'prompt' is missing"),
        ("prompt", {"prompt": [{"role": "user", "content": "Q"}]}, "list of turns is empty or no list"),
        ("text", {"text": "  "}, "the text is empty"),
        ("alpaca", {"instruction": "Q", "output": "A", "history": ["P"]}, "no list of questions, each with its answer"),
        ("chat", {"messages": [ASKED[0], {**ASKED[1], "weight": 0}]}, "none of its answers is to be trained on"),
    ],
)
def test_a_bad_record_says_why(name, record, reason):
    with pytest.raises(BadRecord, match=reason):
        convert(name, record)


def read(path):
    return list(Source(path))


CALL = {"id": "call1", "type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}}


@pytest.mark.parametrize(
    "turn",
    [
        {"tool_calls": [CALL]},
        {"tool_calls": [CALL], "content": None},
        {"tool_calls": [{**CALL, "function": {"name": "weather", "arguments": '{"town": "Ulm"}'}}]},
        {"function_call": {"name": "weather", "arguments": '{"town": "Ulm"}'}},
    ],
)
def test_a_call_of_a_tool_is_an_answer(turn):
    result = {"role": "tool", "content": "12 degrees", "tool_call_id": "call1"}
    record = {"messages": [ASKED[0], {"role": "assistant", **turn}, result, ASKED[1]]}
    record["tools"] = '[{"type": "function", "function": {"name": "weather"}}]'
    example = convert("chat", record)
    assert example.messages[1]["content"] == ""
    assert example.messages[1]["tool_calls"][0]["function"] == CALL["function"]
    assert example.messages[2] == result
    assert example.tools[0]["function"]["name"] == "weather"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.txt"])
def test_a_file_of_windows_is_said_to_be_one(tmp_path, name, encoding):
    path = tmp_path / name
    path.write_bytes('{"text": "once"}\n'.encode(encoding))
    with pytest.raises(BadInput, match=r"UTF-16, as Windows.*\n.*\n.*iconv -f utf-16 -t utf-8 'a\."):
        read(path)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.json", b'[{"a": 1},\n {"a": 2},\n {"a": oops}]', "starts at line 3"),
        ("a.json", b'[{"a": "\xff"}]', "not UTF-8"),
        ("a.csv", b'instruction,output\n"open,b\n', "line 2"),
        ("a.parquet", b'{"instruction": "Q", "output": "A"}', "not parquet"),
        ("a.xlsx", b"", r"\.jsonl .*\.parquet"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=said):
        read(tmp_path / name)


def test_jsonl_goes_on_behind_a_bad_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": \n[1]\n{"a": "\xff"}\n{"a": 2}')
    found = [(record.line, record.value, record.problem.split(":")[0]) for record in read(path)]
    assert found == [
        (1, {"a": 1}, ""),
        (3, None, "not JSON"),
        (4, None, "not an object but list"),
        (5, None, "not UTF-8"),
        (6, {"a": 2}, ""),
    ]


def test_a_line_that_is_no_record_any_more_is_passed_over(tmp_path, monkeypatch):
    """As of a file without line breaks: it would fill the memory."""
    monkeypatch.setattr(parse_files, "LONGEST_RECORD", 40)
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"a": "b" * 200}) + '\n{"a": 1}\n' + json.dumps({"a": "c" * 200}))
    too_long = "longer than 0 MB"
    assert [(record.line, record.value, record.problem) for record in read(path)] == [
        (1, None, too_long), (2, {"a": 1}, ""), (3, None, too_long)
    ]  # fmt: skip


def test_nor_is_a_line_of_csv_that_has_no_end_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(parse_files, "LONGEST_RECORD", 1000)
    lines = io.StringIO("a,b\n" + "c" * 100_000)
    assert max(map(len, parse_files._counted(SimpleNamespace(position=0), lines))) == 1000
    path = tmp_path / "a.csv"
    path.write_text("prompt,response\n" + "c" * 100_000 + ",d\n")
    with pytest.raises(BadInput, match="not CSV: field larger than field limit"):
        read(path)


JSON_VALUES = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=30) | st.integers()), max_size=8)


@settings(max_examples=60)
@given(records=JSON_VALUES, indent=st.sampled_from([None, 1]), as_array=st.booleans(), ascii_only=st.booleans())
def test_json_is_read_alike_however_it_is_cut_into_blocks(tmp_path_factory, records, indent, as_array, ascii_only):
    path = tmp_path_factory.mktemp("json") / "a.json"
    dump = [json.dumps(record, indent=indent, ensure_ascii=ascii_only) for record in records]
    path.write_text("[" + ",\n".join(dump) + "]\n" if as_array else "\n".join(dump))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse_files, "BLOCK", 7)
        found = read(path)
    assert [record.value for record in found] == records
    lines = path.read_text().split("\n")
    assert all(lines[record.line - 1].lstrip("[").startswith("{") for record in found)


def test_of_bytes_that_are_no_text_no_more_than_a_character_is_read_one_by_one(tmp_path):
    """Counted, as a clock says little beside other tests."""
    (tmp_path / "a.txt").write_bytes(b"\x80" * 1000)
    singly = []

    class Counted(io.FileIO):
        def read(self, size: int = -1) -> bytes:
            singly.append(size)
            return super().read(size)

    with Counted(tmp_path / "a.txt") as file:
        assert parse_files._rest_of_character(file) == b"\x80" * 3
    assert singly == [1] * 4
    assert [record.problem for record in Source(tmp_path / "a.txt")] == [
        "the piece of text that starts here is not UTF-8"
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_finds_its_separator_and_counts_lines_through_quotes(tmp_path, separator):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file, delimiter=separator)
        rows.writerows([["instruction", "output"], ["two\nlines", 'a "word"'], ["x"], ["b", "c"]])
    found = [(record.line, record.value and record.value["output"], record.problem) for record in read(path)]
    assert found == [(3, 'a "word"', ""), (4, None, "has fewer columns than the header"), (5, "c", "")]


def test_csv_of_excel_names_its_separator_and_may_end_in_empty_columns(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffsep=;\r\nprompt;output;;\r\na,b,c,d;e;;\r\n", newline="")
    [record] = read(tmp_path / "a.csv")
    assert record.line == 3 and record.value == {"prompt": "a,b,c,d", "output": "e", "": ""}


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,output,output\na,b,c\n")
    with pytest.raises(BadInput, match="two columns are called 'output'"):
        list(read(tmp_path / "a.csv"))


def test_a_line_of_csv_that_is_not_utf_8_is_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("instruction,output\na\udcff,b\n🙂\udcff,b\n".encode(errors="surrogateescape"))
    assert [record.problem for record in read(path)] == ["not UTF-8"] * 2


def test_text_is_cut_between_paragraphs_and_nothing_is_lost(tmp_path):
    path = tmp_path / "a.txt"
    paragraph = "Ein Wörtchen über Züge. " * 40 + "\n\n"
    path.write_text(paragraph * 200 + "ü" * 200_000)
    pieces = [record.value["text"] for record in read(path)]
    assert "".join(pieces) == path.read_text()
    assert len(pieces) > 3
    assert pieces[0].endswith("\n\n")
    assert max(map(len, pieces)) <= 2 * parse_files.TEXT_PIECE


def test_parquet_is_read_where_pyarrow_is(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"instruction": ["Q", "R"], "output": ["A", "B"]}), path)
    assert [record.value["output"] for record in read(path)] == ["A", "B"]
    turns = [{**ASKED[0], "tool_calls": None}, ASKED[1]]  # a column that some turns do not have comes as null
    parquet.write_table(pyarrow.table({"messages": [turns] * 3, "text": [None] * 3}), path, row_group_size=2)
    assert [convert(detect(record.value), record.value).messages for record in read(path)] == [ASKED] * 3


def test_a_damaged_page_of_parquet_names_the_row(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"row {number}" for number in range(600)]})
    parquet.write_table(table, path, row_group_size=300, use_dictionary=False)
    page = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[page : page + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"not parquet behind row (288|300)"):
        read(path)


def test_a_value_that_parquet_holds_once_is_not_held_for_every_row(tmp_path):
    path, peak = tmp_path / "a.parquet", pyarrow.total_allocated_bytes()
    once = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 300, pyarrow.int32()), pyarrow.array(["y" * 2**21]))
    parquet.write_table(pyarrow.table({"text": once}), path, compression="zstd", store_schema=False)
    read = 0
    for _ in Source(path):
        read, peak = read + 1, max(peak, pyarrow.total_allocated_bytes())
    assert (read, path.stat().st_size < 10_000) == (300, True)
    assert peak < 2**28, f"{peak >> 20} MB for a value of 2 MB"


@pytest.mark.parametrize("at_fault", ["LARGEST_GROUP", "memory"])
def test_parquet_that_needs_more_memory_than_there_is_says_so(tmp_path, monkeypatch, at_fault):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["x"] * 3}), path)
    if at_fault == "LARGEST_GROUP":
        monkeypatch.setattr(parse_files, "LARGEST_GROUP", 8)
    else:
        monkeypatch.setattr(parquet.ParquetFile, "iter_batches", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(BadInput, match="must be in memory at once") as error:
        list(Source(path))
    assert str(path) in str(error.value) and "smaller row groups" in str(error.value)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    path = tmp_path / "a.parquet"
    path.touch()
    with pytest.raises(BadInput, match=r"requirements/parquet\.txt"):
        read(path)
