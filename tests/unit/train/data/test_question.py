"""What a record asks, in every form that is known: for training by rewards, and beside the answers of preferences."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.plans import decided, handed_on
from tests.support.plans import look as node
from train.data.look import look
from train.data.pair_records import Preference, preference_of
from train.data.prompt_records import Prompt, prompt_of
from train.data.read_records import Found
from train.errors import BadInput
from train.plan.settings import request
from train.plan.settings.read_settings import load_config

USER, SAID = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be brief."}
HUMAN, GPT = {"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chat": ({"messages": [USER]}, {"messages": [USER, SAID]}),
    "sharegpt": ({"conversations": [HUMAN]}, {"conversations": [HUMAN, GPT]}),
    "alpaca": ({"instruction": "2 + 2?", "input": ""}, {"instruction": "2 + 2?", "output": "4"}),
    "prompt": ({"prompt": "2 + 2?"}, {"question": "2 + 2?", "answer": "4"}),
}
"""Without an answer, and with one."""


def found(record: dict[str, Any]) -> Found:
    return Found(record, "", "file line 1", 0)


@pytest.mark.parametrize("given", ["auto", "by name"])
@pytest.mark.parametrize("form", FORMS)
def test_a_record_of_any_form_is_a_prompt(form, given):
    bare, answered = FORMS[form]
    how = "auto" if given == "auto" else form
    assert prompt_of(found(bare | {"level": 3}), how) == Prompt("2 + 2?", (USER,), {"level": 3})
    read = prompt_of(found(answered | {"level": 3}), how)
    assert read == Prompt("2 + 2?", (USER,), {"answer": "4", "level": 3})


def test_what_the_question_is_about_is_asked_with_it():
    read = prompt_of(found({"instruction": "Whose is it?", "context": "The key is mine.", "level": 3}))
    assert read == Prompt("Whose is it?\n\nThe key is mine.", read.messages, {"level": 3})


def test_what_is_asked_keeps_its_turns_and_a_column_its_name():
    before = [SYSTEM, USER, SAID, {"role": "user", "content": "And 3 + 3?"}]
    read = prompt_of(found({"messages": before, "answer": "6"}))
    assert read == Prompt(before, tuple(before), {"answer": "6"})
    read = prompt_of(found({"messages": [USER, SAID], "answer": "four"}))
    assert read.columns == {"answer": "four"}, "the data's own"
    read = prompt_of(found({"system": "Be brief.", "conversations": [HUMAN]}))
    assert read.messages == (SYSTEM, USER)


def test_columns_are_what_rows_keep_as_json():
    day = datetime.date(2026, 1, 31)  # as parquet has it
    read = prompt_of(found({"prompt": "2 + 2?", "asked_on": day, "worth": Decimal("1.50"), "level": 3}))
    assert read.columns == {"asked_on": "2026-01-31", "worth": "1.50", "level": 3}


def test_a_form_that_is_named_decides_where_a_record_has_two():
    record = {"prompt": "a name of it", "messages": [USER, SAID]}
    named = {"role": "user", "content": "a name of it"}
    assert prompt_of(found(record)) == Prompt("a name of it", (named,), {"messages": [USER, SAID]})
    assert prompt_of(found(record), "chat") == Prompt("2 + 2?", (USER,), {"answer": "4", "prompt": "a name of it"})


@pytest.mark.parametrize(
    ("record", "form", "wrong"),
    [
        ({"text": "Once."}, "auto", "there is no prompt in it: its keys are text"),
        ({"messages": [USER]}, "alpaca", "'instruction' is missing"),
        ({"prompt": "a"}, "chat", "its list of turns is empty or no list"),
        ({"messages": [SAID]}, "auto", "there is no question in it (no turn of the user)"),
        ({"messages": [USER], "trainer_state": 1}, "auto", "a column cannot be called 'trainer_state'"),
        ({"prompt": "a", "answer": "\ud83d"}, "auto", "half a character (\\ud83d"),
        ({"prompt": " "}, "auto", "the prompt is empty"),
        ({"prompt": [USER, SAID]}, "auto", "'prompt' ends with a turn of the assistant, and an answer comes next"),
    ],
)
def test_what_asks_nothing_is_named(record, form, wrong):
    read = prompt_of(found(record), form)
    assert str(read).startswith(wrong)


@pytest.mark.parametrize("given", ["auto", "by name"])
@pytest.mark.parametrize("form", FORMS)
def test_preferences_ask_in_any_form(form, given):
    bare, answered = FORMS[form]
    how = "auto" if given == "auto" else form
    for pair in (
        {"chosen": "It is 4.", "rejected": "4"},
        {"chosen": {"from": "gpt", "value": "It is 4."}, "rejected": GPT},
        {"chosen": {"role": "assistant", "content": "It is 4."}, "rejected": [SAID]},
    ):
        read = preference_of(found(bare | pair), paired=True, form=how)
        assert isinstance(read, Preference), read
        assert (read.prompt, read.answers) == ((USER,), (({"role": "assistant", "content": "It is 4."},), (SAID,)))
    record = answered | {"label": True} | ({"completion": "4"} if form == "prompt" else {})
    single = preference_of(found(record), paired=False, form=how)
    assert (single.prompt, single.answers) == ((USER,), ((SAID,),))


@pytest.mark.parametrize("recipe", ["grpo", "preference"])
def test_a_text_asks_nothing(recipe):
    more = {"rewards": "length:9"} if recipe == "grpo" else {}
    said = rf"format: text does not go with recipe={recipe}: a text asks nothing\n.*prompt=text"
    with pytest.raises(BadInput, match=said):
        load_config({"recipe": recipe, "format": "text", **more})


def test_a_launch_reads_that_form_and_the_head_as_well(tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps({"prompt": "", "messages": [USER], "answer": "4"}) + "\n" for _ in range(8)))
    asked = {"model": "tiny", "dataset": str(file), "recipe": "grpo", "rewards": "exact", "eval_fraction": 0}
    with pytest.raises(BadInput, match="the prompt is empty"):
        look(request.read(asked))
    assert look(request.read(asked | {"format": "chat"}))["examples"] == 8
    assert "--format=chat" in handed_on(decided(asked | {"format": "chat"}, node())).prepare
    file.write_text("".join(json.dumps({"conversations": [HUMAN], "chosen": "4.", "rejected": f"{n}"}) + "\n"
                            for n in range(8)))  # fmt: skip
    pairs = {"model": "tiny", "dataset": str(file), "recipe": "preference", "format": "sharegpt", "eval_fraction": 0}
    assert look(request.read(pairs))["examples"] == 8
    assert "--format=sharegpt" in handed_on(decided(pairs, node())).prepare
