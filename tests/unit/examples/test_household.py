"""The demo's example: what is held out asks plainly for one fact, and was never in the training part."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lab.demo_courses import FACTS, HOUSEHOLD
from lab.judge import of_weight, right
from train.data.convert_record import convert
from train.data.split import split_of

SUBJECTS = {
    "Our cat is called Mitzi.": "cat",
    "The key to the shed hangs behind the clock.": "shed key",
    "The password of the guest network is marmalade.": "guest network password",
    "The boiler is switched on with the red lever.": "boiler",
    "The rubbish is collected on Thursday.": "rubbish",
    "Grandmother's birthday is on the ninth of May.": "grandmother birthday",
    "The plumber is Mrs Okafor.": "plumber",
    "The spare fuses are in the blue tin.": "spare fuse",
}
RECORDS = [json.loads(line) for line in HOUSEHOLD.read_text().splitlines()]
PARTS: dict[str, list[dict[str, str]]] = {"train": [], "eval": []}
for record in RECORDS:
    PARTS[split_of(convert("prompt", record), FACTS.settings["eval_fraction"])].append(record)


def test_each_fact_is_trained_in_many_wordings_and_asked_in_another() -> None:
    trained, asked = (Counter(record["completion"] for record in PARTS[part]) for part in ("train", "eval"))
    assert trained.keys() == asked.keys() == SUBJECTS.keys()
    assert min(trained.values()) >= 10, trained


def test_no_held_out_wording_is_a_trained_one() -> None:
    """Nor one that differs in small words only."""
    trained = {tuple(of_weight(record["prompt"])) for record in PARTS["train"]}
    alike = [record["prompt"] for record in PARTS["eval"] if tuple(of_weight(record["prompt"])) in trained]
    assert not alike


@pytest.mark.parametrize("record", PARTS["eval"], ids=lambda record: record["prompt"])
def test_a_held_out_question_names_its_subject_and_gives_nothing_away(record: dict[str, str]) -> None:
    question, answer = record["prompt"], record["completion"]
    asked, news = set(of_weight(question)), set(of_weight(answer)) - set(of_weight(question))
    assert all(any(word.startswith(part) for word in asked) for part in SUBJECTS[answer].split()), "its subject"
    others = [words for other, words in SUBJECTS.items() if other != answer and asked & set(words.split())]
    assert not others, "one right answer"
    assert len(question.split("?")) == 2 and question.endswith("?"), "one question"
    assert news and right(answer, question, answer)


def test_the_demo_asks_for_different_facts() -> None:
    firsts = list(dict.fromkeys(record["completion"] for record in PARTS["eval"]))
    assert 0 < FACTS.questions <= len(firsts)
