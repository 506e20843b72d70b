"""What the rewards that Motley has give."""

from typing import Any

import pytest

from train.rewards.built_in import function_of, last_number, text_of


def values(kind: str, argument: str, completions: list[Any], answer: list[Any] | None = None) -> list[float]:
    columns = {} if answer is None else {"answer": answer}
    return function_of(kind, argument)(prompts=["?"] * len(completions), completions=completions, other=[], **columns)


def test_exact_is_the_rows_answer_without_what_stands_around():
    assert values("exact", "", [" Paris\n", "paris", "Paris.", "5"], ["Paris", "Paris", "Paris", 5]) == [1, 0, 0, 1]


def test_number_is_the_last_one_of_each():
    said = ["3 + 4 is 7.", "12", "It costs $1,200.50!", "none", "7 or 8", "10-3", "it is −3", "1,2"]
    row = ["3+4=7\n#### 7", "13", 1200.5, "5", 7, -3, -3, 2]
    assert values("number", "", said, row) == [1, 0, 1, 0, 0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"the column answer has 'seven', where there is no number"):
        values("number", "", ["7"], ["seven"])


def test_a_minus_between_two_numbers_is_no_sign():
    found = [last_number(text) for text in ("10-3", "10 - 3", "is -3", "(-3)", "1,234,567", "v2.5", "")]
    assert list(map(str, found)) == ["3", "3", "-3", "-3", "1234567", "2.5", "None"]


def test_format_is_the_whole_answer():
    said = ["Answer: 5", " Answer: 5\n", "The Answer: 5", "Answer: 5\nor 6"]
    assert values("format", r"Answer: .+", said) == [1, 1, 0, 1]
    assert values("format", r"Answer: \d", said) == [1, 1, 0, 0]


def test_length_falls_behind_its_limit_and_an_empty_answer_has_no_worth():
    assert values("length", "2", ["a", "a b", "a b c d", "", "  "]) == [1, 1, 0.5, 0, 0]


def test_json_is_one_object_or_list():
    said = ['{"a": [1]}', " [] ", "3", '"a"', "{a: 1}", "[NaN]", "[] []", "[" * 100_000, ""]
    assert values("json", "", said) == [1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_of_a_chat_the_last_message_is_the_answer():
    assert text_of([{"role": "assistant", "content": "a"}]) == "a"
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}]) == "ab"
    assert text_of([]) == text_of([{"content": None}]) == ""
    assert values("exact", "", [[{"role": "assistant", "content": " a "}]], ["a"]) == [1]
