"""Records of preferences: a prompt with a better and a worse answer, or with one answer that is called good or bad.

    {"prompt": "…", "chosen": "…", "rejected": "…"}       {"prompt": "…", "completion": "…", "label": true}

Each may be a text or a list of turns. Two whole conversations without a prompt have what is the same in both as theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from train.data.formats import BadRecord, Example, Message, as_text, convert
from train.data.records import Asked, Found
from train.data.split import draw
from train.errors import BadInput

FORMAT_NAME = "preferences"
NOTHING: tuple[Any, ...] = (None, "", [])
PAIRED, SINGLE = ("chosen", "rejected"), ("completion", "label")


@dataclass(frozen=True, slots=True)
class Preference:
    prompt: tuple[Message, ...]
    answers: tuple[tuple[Message, ...], ...]
    """The better and the worse one, or one alone."""
    good: bool = True
    """Of one alone: what it is called."""

    def split(self, eval_fraction: float) -> str:
        """The side follows from what is asked alone, so what is asked twice is on one side."""
        return "eval" if draw(self.prompt) < eval_fraction else "train"

    @property
    def examples(self) -> list[Example]:
        """Each answer behind the prompt, with its turns alone to be learned from."""
        return [
            Example((*self.prompt, *answer), trained_turns=sum(turn["role"] == "assistant" for turn in answer))
            for answer in self.answers
        ]


def preference_of(found: Found, *, paired: bool) -> Preference | BadRecord:
    """BadInput where the data is of the other kind: then the loss is not the one that was meant."""
    if found.value is None:
        return BadRecord(found.problem)
    require_kind(found, paired)
    try:
        return pair(found.value) if paired else single(found.value)
    except BadRecord as error:
        return error


def require_kind(found: Found, paired: bool) -> None:
    keys = set(found.value or ())
    wanted, other = (PAIRED, SINGLE) if paired else (SINGLE, PAIRED)
    if keys & set(wanted) or not keys & set(other):
        return
    fix = "use loss=kto, which takes single answers" if paired else "leave loss=kto out: dpo and others take pairs"
    what = f"this record has {' and '.join(sorted(keys & set(other)))}, and the loss takes {' and '.join(wanted)}"
    raise BadInput(f"{what}: all rows of a run are of one kind", f"found: {found.where}", fix)


def pair(record: dict[str, Any]) -> Preference:
    for name in PAIRED:
        if record.get(name) in NOTHING:
            raise BadRecord(f"a pair without '{name}': both answers are needed")
    asked, chosen, rejected = record.get("prompt"), record["chosen"], record["rejected"]
    if isinstance(chosen, list) != isinstance(rejected, list):
        raise BadRecord("'chosen' is a text and 'rejected' a list of turns, or the other way round")
    if chosen == rejected:
        raise BadRecord("'chosen' and 'rejected' are the same answer: nothing is preferred")
    if isinstance(chosen, list) and not isinstance(asked, list):
        both = turns(chosen, "chosen"), turns(rejected, "rejected")
        if both[0][0]["role"] != "assistant":
            return of_conversations(*both, asked)
    prompt = prompt_of(asked)
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


def single(record: dict[str, Any]) -> Preference:
    label = record.get("label")
    if not isinstance(label, bool) and label not in (0, 1):
        raise BadRecord(f"'label' is {label!r}, and it is true for a good answer or false for a bad one")
    if record.get("completion") in NOTHING:
        raise BadRecord("there is no 'completion': the answer that is called good or bad")
    prompt = prompt_of(record.get("prompt"))
    return Preference(prompt, (answer_of(prompt, record["completion"], "completion"),), bool(label))


def prompt_of(asked: Any) -> tuple[Message, ...]:
    if asked is None:
        raise BadRecord("there is no 'prompt' that is answered")
    if isinstance(asked, list):
        found = turns(asked, "prompt")
        if found[-1]["role"] == "assistant":
            raise BadRecord("'prompt' ends with a turn of the assistant, and an answer comes next")
        return found
    text = as_text(asked, "'prompt'")
    if not text.strip():
        raise BadRecord("the prompt is empty")
    return convert("prompt", {"prompt": text, "completion": "-"}).messages[:1]


def answer_of(prompt: tuple[Message, ...], answer: Any, name: str) -> tuple[Message, ...]:
    if not isinstance(answer, list):
        text = as_text(answer, f"'{name}'")
        if not text.strip():
            raise BadRecord(f"'{name}' is an empty answer")
        return ({"role": "assistant", "content": text},)
    found = turns(answer, name)
    if found[0]["role"] == "assistant":
        return found
    if found[: len(prompt)] != prompt or len(found) == len(prompt):
        raise BadRecord(f"the turns of '{name}' do not begin with those of 'prompt': the prompts differ")
    return found[len(prompt) :]


def turns(listed: list[Any], name: str) -> tuple[Message, ...]:
    """As a conversation is read elsewhere, whichever end it has."""
    if not listed or not all(isinstance(turn, dict) for turn in listed):
        raise BadRecord(f"'{name}' is no list of turns")
    asked, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": "-"}
    return convert("chat", {"messages": [asked, *listed, answer]}).messages[1:-1]


def sides(paired: bool, eval_fraction: float, asked: Asked) -> list[tuple[str, bool] | BadRecord]:
    """On which side each record is; as in look.py."""
    made = map(partial(preference_of, paired=paired), asked[1])
    return [one if isinstance(one, BadRecord) else (one.split(eval_fraction), True) for one in made]
