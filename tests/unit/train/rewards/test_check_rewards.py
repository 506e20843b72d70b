"""`python -m train check-rewards`: what it tries, what it shows, and which functions a run cannot use."""

import json
import re
from pathlib import Path

import pytest

from train.__main__ import main

SUMS = [
    {"prompt": "What is 2 + 3?", "answer": "5", "level": 1},
    {"prompt": [{"role": "user", "content": "What is 1 + 1?"}], "answer": "2", "level": 2},
    {"question": "What is 4 + 4?", "answer": "8", "level": 1},
]


@pytest.fixture
def sums(tmp_path: Path) -> str:
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(record) + "\n" for record in SUMS))
    return str(tmp_path / "sums.jsonl")


def check(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["check-rewards", *words]) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def mine(tmp_path: Path, text: str) -> str:
    (tmp_path / "r.py").write_text(text)
    return f"--rewards={tmp_path}/r.py"


def test_each_row_is_tried_with_its_answer_and_with_wrong_ones(capsys, sums):
    lines = check(capsys, "--rewards=exact,0.5@length:2", "--dataset", sums, "--rows=2").splitlines()
    assert lines[0].split() == ["row", "answer", "exact", "length:2", "total"]
    assert [line.split() for line in lines[1:6]] == [
        ["1", "its", "own", "1", "1", "1.5", "5"],
        ["1", "another", "row's", "0", "1", "0.5", "2"],
        ["1", "unknowing", "0", "0.5", "0.25", "I", "do", "not", "know."],
        ["1", "empty", "0", "0", "0"],
        ["2", "its", "own", "1", "1", "1.5", "2"],
    ]
    assert len(lines) == 11 and lines[-1].endswith(" ms an answer")


def test_what_is_taken_of_a_data_set_is_what_a_launch_would_take(capsys, tmp_path):
    records = [{"asked": "What is 1 + 1?", "reply": None}, {"asked": "What is 2 + 3?", "reply": "5"}]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ["--rewards=exact", "--json", f"--dataset={tmp_path}/sums.jsonl"]
    words[-1] += "?prompt=asked&answer=reply"
    rows = json.loads(check(capsys, *words))["rows"]
    assert [(row["row"], row["text"], row["total"]) for row in rows if row["kind"] == "its own"] == [(2, "5", 1)]
    words[-1] = f"--dataset={tmp_path}/sums.jsonl[1:]?prompt=asked&answer=reply"
    rows = json.loads(check(capsys, *words))["rows"]
    assert {row["prompt"] for row in rows} == {"What is 2 + 3?"}


def test_as_data_and_without_a_file(capsys):
    found = json.loads(check(capsys, "--rewards=json", "--json"))
    own = {row["row"]: row["by_function"]["json"] for row in found["rows"] if row["kind"] == "its own"}
    assert found["ok"] and own == {1: 0, 2: 0, 3: 1} and found["seconds_per_answer"] > 0


def test_a_function_gets_prompts_and_columns_in_the_form_of_the_data(capsys, tmp_path, sums):
    text = """
def f(prompts, completions, level, **columns):
    print(sorted(columns))
    return [x + 10 * isinstance(p, list) + 100 * isinstance(c, list) for p, c, x in zip(prompts, completions, level)]
"""
    main(["check-rewards", mine(tmp_path, text), "--dataset", sums])
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines() if " empty " in line and not line.startswith("row")]
    assert [(words[0], words[-2]) for words in lines] == [("1", "1"), ("2", "112"), ("3", "1")]
    assert "rewards: ['answer']" in err


def test_what_a_person_may_not_have_meant_is_noted(capsys, tmp_path, sums):
    text = """
def short(completions): return [-len(c) for c in completions]
def same(completions): return [1] * len(completions)
"""
    out = check(capsys, mine(tmp_path, text), "--dataset", sums, "--rows=1")
    assert "same gives every answer here the same: it would teach nothing" in out
    assert "row 1: the answer that is empty is worth as much as its own" in out and "unknowing is worth" not in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import os\ndef f(completions): return [os.urandom(1)[0] / 3 for c in completions]",
            r"and then [\d.]+\nlet it",
        ),
        ("def f(completions): return range(len(completions))", r"to row 1 1 among others, and 0 alone\nlet it look at"),
        ("def f(completions): return [1 / len(c) for c in completions]", r"the reward f raised ZeroDivisionError"),
    ],
)
def test_what_a_run_cannot_use_fails(text, message, capsys, tmp_path):
    err = check(capsys, mine(tmp_path, text), code=1)
    assert re.search(message, err), err


def test_bad_input_is_said_before_anything_runs(capsys, tmp_path, sums):
    assert "there is no file none.jsonl" in check(capsys, "--rewards=json", "--dataset=none.jsonl", code=2)
    assert "there is no file" in check(capsys, f"--rewards={tmp_path}/r.py", code=2)
    assert "check-rewards fetches none" in check(capsys, "--rewards=json", "--dataset=gsm8k/none", code=2)
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "solution": "b"}\n')
    err = check(capsys, "--rewards=exact", f"--dataset={tmp_path}/a.jsonl", code=2)
    assert "exact compares with the column answer" in err and "a.jsonl has: solution" in err
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n' * 3)
    err = check(capsys, "--rewards=json", f"--dataset={tmp_path}/a.jsonl", code=2)
    wanted = "no prompt in this file; a.jsonl line 1: there is no prompt in it: its keys are x"
    assert wanted in err and "write: " in err
