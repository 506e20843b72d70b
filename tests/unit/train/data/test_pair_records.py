"""Records of preferences: which forms are read, and what is said of one that cannot be compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from train.data.convert_record import BadRecord
from train.data.look import look
from train.data.pair_records import Preference, preference_of
from train.data.read_records import Found
from train.errors import BadInput
from train.plan.settings import request

USER, KIND, CURT = (
    {"role": "user", "content": "Where is the key?"},
    {"role": "assistant", "content": "In the hall, gladly."},
    {"role": "assistant", "content": "Hall."},
)
SYSTEM = {"role": "system", "content": "Be kind."}
MORE = {"role": "user", "content": "And the other one?"}


def read(record: dict[str, Any], *, paired: bool = True) -> Preference | BadRecord:
    return preference_of(Found(record, "", "file line 1", 0), paired=paired)


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Where is the key?", "chosen": "In the hall, gladly.", "rejected": "Hall."},
        {"prompt": [USER], "chosen": [KIND], "rejected": [CURT]},
        {"prompt": [USER], "chosen": [USER, KIND], "rejected": [USER, CURT]},
        {"prompt": "Where is the key?", "chosen": [KIND], "rejected": [CURT]},
        {"prompt": "Where is the key?", "chosen": [USER, KIND], "rejected": [USER, CURT], "score": 3},
        {"chosen": [USER, KIND], "rejected": [USER, CURT]},
    ],
)
def test_all_forms_of_a_pair_are_one(record):
    found = read(record)
    assert isinstance(found, Preference), found
    assert (found.prompt, found.answers) == ((USER,), ((KIND,), (CURT,)))
    assert [example.trained_turns for example in found.examples] == [1, 1]
    assert found.examples[1].messages == (USER, CURT)


def test_turns_before_the_answers_are_the_prompt():
    before = [SYSTEM, USER, KIND, MORE]
    for record in (
        {"chosen": [*before, KIND], "rejected": [*before, CURT]},
        {"prompt": before, "chosen": [KIND], "rejected": [CURT]},
    ):
        found = read(record)
        assert found.prompt == tuple(before)
        assert found.examples[0].trained_turns == 1, "the first answer is of the prompt"


@pytest.mark.parametrize("label", [True, False, 1, 0, "True", "FALSE", "1", "0"])
def test_single_answers_have_a_label(label):
    found = read({"prompt": "Where is the key?", "completion": "Hall.", "label": label}, paired=False)
    assert found.answers == ((CURT,),) and found.good == (label in (True, 1, "True", "1"))
    listed = read({"prompt": [USER], "completion": [CURT], "label": label}, paired=False)
    assert listed == found


def test_what_the_assistant_may_call_is_asked_with():
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    found = read({"prompt": "Where is the key?", "chosen": "Hall.", "rejected": "No.", "tools": tools})
    assert [list(example.tools) for example in found.examples] == [tools, tools]


def test_the_same_prompt_is_on_one_side():
    pairs = [read({"prompt": "a", "chosen": f"{i}", "rejected": "no"}) for i in range(20)]
    assert len({pair.split(0.5) for pair in pairs}) == 1
    others = [read({"prompt": f"{i}", "chosen": "yes", "rejected": "no"}) for i in range(40)]
    assert len({pair.split(0.5) for pair in others}) == 2


PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
TALKS = {"chosen": [USER, KIND], "rejected": [USER, CURT]}
DIFFER = "the prompts of 'chosen' and 'rejected' differ: both must answer the same turns"
OTHER = "the turns of 'chosen' do not begin with those of 'prompt': the prompts differ"
A_LABEL = "it is true for a good answer or false for a bad one"


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        ({"prompt": "a", "chosen": "b"}, "a pair without 'rejected': both answers are needed"),
        (PAIR | {"chosen": ""}, "a pair without 'chosen': both answers are needed"),
        (PAIR | {"rejected": "b"}, "'chosen' and 'rejected' are the same answer: nothing is preferred"),
        (PAIR | {"rejected": "  "}, "'rejected' is an empty answer"),
        (PAIR | {"prompt": " "}, "the prompt is empty"),
        (PAIR | {"chosen": "\ud83d"}, "half a character (\\ud83d, as of a cut emoji), which no tokenizer reads"),
        (PAIR | {"prompt": [USER, KIND]}, "'prompt' ends with a turn of the assistant, and an answer comes next"),
        ({"chosen": "b", "rejected": "c"}, "there is no 'prompt' that is answered"),
        (PAIR | {"chosen": [KIND]}, "'chosen' is a text and 'rejected' a list of turns, or the other way round"),
        (
            {"messages": [USER, KIND], "chosen": "b", "rejected": "c"},
            "what is asked ends with an answer, and there are others beside it",
        ),
        (TALKS | {"rejected": [MORE, CURT]}, DIFFER),
        ({"chosen": [USER, KIND, MORE], "rejected": [USER, KIND, USER]}, DIFFER),
        (
            TALKS | {"prompt": "Why?"},
            "'prompt' is not what 'chosen' and 'rejected' answer: their last common turn is another",
        ),
        (TALKS | {"prompt": [MORE]}, OTHER),
        (TALKS | {"prompt": [USER], "chosen": [USER]}, OTHER),
        (
            TALKS | {"rejected": [USER, KIND, MORE, CURT]},
            "one of 'chosen' and 'rejected' only goes on where the other ends: they are no two answers",
        ),
        (
            {"prompt": [USER, KIND, MORE], "chosen": [USER, KIND, MORE, MORE], "rejected": [USER, KIND, MORE, CURT]},
            "no turn of the assistant follows the prompt in 'chosen'",
        ),
        (PAIR | {"chosen": [KIND], "rejected": [{"a": 1}]}, "a turn lacks 'role' or 'content'"),
    ],
)
def test_what_cannot_be_compared_is_named_in_one_sentence(record, wrong):
    assert str(read(record)) == wrong


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        ({"prompt": "a", "completion": "b"}, f"'label' is None, and {A_LABEL}"),
        ({"prompt": "a", "completion": "b", "label": "yes"}, f"'label' is 'yes', and {A_LABEL}"),
        ({"prompt": "a", "label": True}, "there is no 'completion': the answer that is called good or bad"),
        ({"completion": "b", "label": True}, "there is no 'prompt' that is answered"),
    ],
)
def test_a_single_answer_that_says_nothing_is_named(record, wrong):
    assert str(read(record, paired=False)) == wrong


def seen(folder: Path, records: list[dict[str, Any]], **values: Any) -> dict[str, Any]:
    file = folder / "answers.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    return look(request.read({"recipe": "preference", "model": "tiny", "dataset": str(file), **values}))


PAIRS = [{"prompt": f"What is {i}?", "chosen": f"It is {i}.", "rejected": f"{i}"} for i in range(40)]
SINGLE = [{"prompt": f"What is {i}?", "completion": f"It is {i}.", "label": i % 2 == 0} for i in range(40)]


def test_they_are_counted_before_anything_is_sent(tmp_path):
    found = seen(tmp_path, PAIRS, rows_per_step=4, epochs=10)
    assert found["words"] == "40 examples: 3 held out, 37 trained on; 93 steps"
    assert seen(tmp_path, SINGLE, loss="kto", eval_fraction=0)["words"].startswith("40 examples: 0 held out")
    found = seen(tmp_path, [*PAIRS, {"prompt": "a", "chosen": "b"}])
    assert found["skipped"] == 1 and found["first_bad"] == (
        "answers.jsonl line 41: a pair without 'rejected': both answers are needed"
    )


@pytest.mark.parametrize(
    ("records", "values", "wrong"),
    [
        ([{"prompt": "a", "chosen": "b"}] * 20, {}, "6 bad records of 6; the first: .* a pair without 'rejected'"),
        (
            SINGLE,
            {},
            "this record has completion and label, and the loss takes chosen and rejected: all rows of a run are of "
            "one kind\nfound: answers.jsonl line 1\nuse loss=kto, which takes single answers",
        ),
        (PAIRS, {"loss": "kto"}, "and the loss takes completion and label: .*\nfound: .*line 1\nleave loss=kto out"),
        ([*PAIRS, *SINGLE], {}, "of one kind\nfound: answers.jsonl line 41\n"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path, records, values, wrong):
    with pytest.raises(BadInput, match=wrong) as caught:
        seen(tmp_path, records, **values)
    assert len(str(caught.value).splitlines()) <= 3
