"""Records of preferences: a prompt with a better and a worse answer, or with one answer that is called good or bad.

    {"prompt": "…", "chosen": "…", "rejected": "…"}       {"prompt": "…", "completion": "…", "label": true}

Each may be a text, a turn or a list of turns, and what is asked in any form that is known (question.py). Two whole
conversations without a prompt have what is the same in both as theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from train.data.convert_record import (
    BadRecord,
    Example,
    JsonObject,
    Message,
    as_text,
    convert,
    require_whole_characters,
    tools_of,
)
from train.data.question import asked_in, form_of, question_name, question_of
from train.data.read_records import Found
from train.data.split import draw
from train.errors import BadInput

FORMAT_NAME = "preferences"
NOTHING: tuple[Any, ...] = (None, "", [])
PAIRED, SINGLE = ("chosen", "rejected"), ("completion", "label")
LABELS = {"true": True, "false": False, "1": True, "0": False}  # a table of text has it so


@dataclass(frozen=True, slots=True)
class Preference:
    prompt: tuple[Message, ...]
    answers: tuple[tuple[Message, ...], ...]
    """The better and the worse one, or one alone."""
    good: bool = True
    """What a single answer is called."""
    tools: tuple[JsonObject, ...] = ()
    """What the assistant may call."""

    def split(self, eval_fraction: float) -> str:
        """The side follows from what is asked alone, so what is asked twice is on one side."""
        return "eval" if draw(self.prompt) < eval_fraction else "train"

    @property
    def examples(self) -> list[Example]:
        """Each answer behind the prompt, with its turns alone to be learned from."""
        return [
            Example((*self.prompt, *answer), "", self.tools, sum(turn["role"] == "assistant" for turn in answer))
            for answer in self.answers
        ]


def preference_of(found: Found, *, paired: bool, form: str = "auto") -> Preference | BadRecord:
    """BadInput where the data is of the other kind: then the loss is not the one that was meant. `form`: how a record
    asks, by the names of convert_record.py; auto: as its keys say."""
    require_kind(found, paired)
    return found.read_by(partial(read, pair if paired else single, form))


def read(kind: Callable[[JsonObject, str], Preference], form: str, record: JsonObject) -> Preference:
    made = replace(kind(record, form), tools=tools_of(record))
    require_whole_characters(made.prompt, made.answers, made.tools)
    return made


def require_kind(found: Found, paired: bool) -> None:
    keys = set(found.value or ())
    wanted, other = (PAIRED, SINGLE) if paired else (SINGLE, PAIRED)
    if keys & set(wanted) or not keys & set(other):
        return
    fix = "use loss=kto, which takes single answers" if paired else "leave loss=kto out: dpo and others take pairs"
    what = f"this record has {' and '.join(sorted(keys & set(other)))}, and the loss takes {' and '.join(wanted)}"
    raise BadInput(f"{what}: all rows of a run are of one kind", f"found: {found.where}", fix)


def pair(record: JsonObject, form: str) -> Preference:
    for name in PAIRED:
        if record.get(name) in NOTHING:
            raise BadRecord(f"a pair without '{name}': both answers are needed")
    chosen, rejected = (listed(record[name]) for name in PAIRED)
    if isinstance(chosen, list) != isinstance(rejected, list):
        raise BadRecord("'chosen' is a text and 'rejected' a list of turns, or the other way round")
    if chosen == rejected:
        raise BadRecord("'chosen' and 'rejected' are the same answer: nothing is preferred")
    form = form_of(record) if form == "auto" else form
    asked = record.get(question_name(record)) if form in ("", "prompt") else None
    if isinstance(chosen, list) and not isinstance(asked, list):
        both = turns(chosen, "chosen"), turns(rejected, "rejected")
        if both[0][0]["role"] != "assistant":
            return of_conversations(*both, asked)
    prompt, _ = prompt_of(record, form)
    return Preference(prompt, (answer_of(prompt, chosen, "chosen"), answer_of(prompt, rejected, "rejected")))


def of_conversations(chosen: tuple[Message, ...], rejected: tuple[Message, ...], asked: Any) -> Preference:
    """What both have in common is the prompt; `asked`: its last turn, where a record repeats it."""
    same = next((at for at, both in enumerate(zip(chosen, rejected, strict=False)) if both[0] != both[1]), None)
    if same is None:
        raise BadRecord("one of 'chosen' and 'rejected' only goes on where the other ends: they are no two answers")
    prompt = chosen[:same]
    if not prompt or any(one[same]["role"] != "assistant" for one in (chosen, rejected)):
        raise BadRecord("the prompts of 'chosen' and 'rejected' differ: both must answer the same turns")
    if asked is not None and as_text(asked, "'prompt'").strip() != str(prompt[-1]["content"]).strip():
        raise BadRecord("'prompt' is not what 'chosen' and 'rejected' answer: their last common turn is another")
    return Preference(prompt, (chosen[same:], rejected[same:]))


def single(record: JsonObject, form: str) -> Preference:
    label = record.get("label")
    label = LABELS.get(label.strip().lower(), label) if isinstance(label, str) else label
    if not isinstance(label, bool) and label not in (0, 1):
        raise BadRecord(f"'label' is {label!r}, and it is true for a good answer or false for a bad one")
    prompt, answer = prompt_of(record, form, is_answered="completion" not in record)
    answer = listed(record.get("completion", answer))
    if answer in NOTHING:
        raise BadRecord("there is no 'completion': the answer that is called good or bad")
    return Preference(prompt, (answer_of(prompt, answer, "completion"),), bool(label))


def prompt_of(record: JsonObject, form: str, *, is_answered: bool = False) -> tuple[tuple[Message, ...], str | None]:
    """What is asked; with `is_answered` also the answer that stands behind it, in a form that has one."""
    form = form_of(record) if form == "auto" else form
    name = question_name(record)
    if not form or (form == "prompt" and record.get(name) is None):
        raise BadRecord("there is no 'prompt' that is answered")
    if form == "prompt":
        return question_of(record, name), None
    asked, answer = asked_in(form, record)
    if answer is not None and not is_answered:
        raise BadRecord("what is asked ends with an answer, and there are others beside it")
    return asked, answer


def listed(answer: Any) -> Any:
    """One turn, as some write it, as a list of turns."""
    return [answer] if isinstance(answer, dict) else answer


def answer_of(prompt: tuple[Message, ...], answer: Any, name: str) -> tuple[Message, ...]:
    if not isinstance(answer, list):
        text = as_text(answer, f"'{name}'")
        if not text.strip():
            raise BadRecord(f"'{name}' is an empty answer")
        return ({"role": "assistant", "content": text},)
    messages = turns(answer, name)
    if messages[0]["role"] == "assistant":
        return messages
    if messages[: len(prompt)] != prompt or len(messages) == len(prompt):
        raise BadRecord(f"the turns of '{name}' do not begin with those of 'prompt': the prompts differ")
    if messages[len(prompt)]["role"] != "assistant":
        raise BadRecord(f"no turn of the assistant follows the prompt in '{name}'")
    return messages[len(prompt) :]


def turns(listed_turns: list[Any], name: str) -> tuple[Message, ...]:
    """The turns as a conversation is read elsewhere, whichever end it has."""
    if not listed_turns or not all(isinstance(turn, dict) for turn in listed_turns):
        raise BadRecord(f"'{name}' is no list of turns")
    if "from" in listed_turns[0]:
        asked, answer = {"from": "human", "value": "?"}, {"from": "gpt", "value": "-"}
        return convert("sharegpt", {"conversations": [asked, *listed_turns, answer]}).messages[1:-1]
    asked, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": "-"}
    return convert("chat", {"messages": [asked, *listed_turns, answer]}).messages[1:-1]
