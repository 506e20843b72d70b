"""The Modelfile by which Ollama takes a gguf: how it asks (TEMPLATE), its system message, and the words that end an
answer. How it asks is read off the chat template that was trained with, and written in Ollama's form where that says
the same of whole conversations; otherwise Ollama goes by the template in the gguf, where it knows that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from train.data.formats import BadRecord
from train.data.to_tokens import Chat, before_a_text, end_ids, without_system

ROLES = ("system", "user", "assistant")
SYSTEM, ASK, SAY, ASK_AGAIN, SAY_AGAIN, LAST = MARKS = tuple(chr(0xE000 + number) for number in range(6))
TURNS = tuple(zip(("system", "user", "assistant", "user", "assistant", "user"), MARKS, strict=True))
OURS = {
    "system": '{{ if eq .Role "system" }}',
    "user": '{{ else if eq .Role "user" }}',
    "assistant": '{{ else if eq .Role "assistant" }}',
}


@dataclass(frozen=True, slots=True)
class Form:
    """How a template writes a conversation, where it writes each turn by itself."""

    begin: str
    turns: Mapping[str, tuple[str, str]]
    """Role → what stands before and behind its words."""
    answer: str
    """What an answer follows."""

    def render(self, turns: tuple[tuple[str, str], ...]) -> str:
        said = (f"{self.turns[role][0]}{words}{self.turns[role][1]}" for role, words in turns)
        return self.begin + "".join(said) + self.answer


def modelfile(gguf: str, chat: Chat) -> str:
    plain, own = without_system(chat)
    form = form_of(plain)
    lines = [f"FROM ./{gguf}"]
    if form and '"""' not in (text := template(form)):
        lines.append(f'TEMPLATE """{text}"""')
    if system := (own or plain.default_system()).replace('"""', "'''"):  # more quotes would end it
        lines.append(f'SYSTEM """{system}"""')
    return "\n".join([*lines, *(f'PARAMETER stop "{word}"' for word in stops(plain, form))]) + "\n"


def template(form: Form) -> str:
    turns = "".join("{}{}{{{{ .Content }}}}{}".format(OURS[role], *form.turns[role]) for role in ROLES)
    return f"{form.begin}{{{{ range .Messages }}}}{turns}{{{{ end }}}}{{{{ end }}}}{form.answer}"


def stops(chat: Chat, form: Form | None) -> list[str]:
    """The marks that an answer was trained to end with; and the heading of a question, where that is no mark."""
    marks = [str(chat.tokenizer.convert_ids_to_tokens(token)) for token in end_ids(chat)]
    heading = form.turns["user"][0].strip() if form else ""
    is_mark = any(str(chat.tokenizer.convert_ids_to_tokens(token)) in heading for token in chat.specials)
    words = [*marks, *([heading] if heading and not is_mark else [])]
    return [word for word in words if '"' not in word and "\n" not in word]


def form_of(chat: Chat) -> Form | None:
    """The form of a template; None where a turn is written by what stands around it, or no system message is known."""
    try:
        form = _read_off(chat)
        is_same = form and all(form.render(turns) == _asked(chat, turns) for turns in _conversations(chat))
    except BadRecord:
        return None
    if (
        not form
        or not is_same
        or any("{{" in text for text in (form.begin, form.answer, *sum(form.turns.values(), ())))
    ):
        return None
    return _without_first_mark(chat, form)


def _conversations(chat: Chat) -> list[tuple[tuple[str, str], ...]]:
    default = chat.default_system()
    opened: tuple[tuple[str, str], ...] = (("system", default or "Be brief."),)
    asked, more = (("user", "How?"),), (("user", "How?"), ("assistant", "So."), ("user", "Why?"))
    return [(*opened, *asked), (*opened, *more), *([] if default else [asked, more])]


def _asked(chat: Chat, turns: tuple[tuple[str, str], ...], *, answer_next: bool = True) -> str:
    return chat.render([{"role": role, "content": words} for role, words in turns], answer_next)


def _read_off(chat: Chat) -> Form | None:
    """What stands between marks; behind a mark that is the last it ends that turn."""
    whole, ended = _asked(chat, TURNS), _asked(chat, TURNS, answer_next=False)
    spoken = _asked(chat, TURNS[:5], answer_next=False)
    if any(text.count(mark) != 1 for text in (whole, ended) for mark in MARKS) or SAY_AGAIN not in spoken:
        return None
    between = {first: whole[whole.index(first) + 1 : whole.index(then)] for first, then in pairwise(MARKS)}
    after_user, after_assistant = ended.partition(LAST)[2], spoken.partition(SAY_AGAIN)[2]
    before_assistant = between[ASK].removeprefix(after_user)
    before_user = between[SAY].removeprefix(after_assistant)
    bare = _asked(chat, TURNS[1:])
    opening, begin = whole.partition(SYSTEM)[0], bare.partition(ASK)[0].removesuffix(before_user)
    begin = "" if chat.default_system() else begin
    turns = {
        "system": (opening.removeprefix(begin), between[SYSTEM].removesuffix(before_user)),
        "user": (before_user, after_user),
        "assistant": (before_assistant, after_assistant),
    }
    return Form(begin, turns, whole.partition(LAST)[2].removeprefix(after_user))


def _without_first_mark(chat: Chat, form: Form) -> Form:
    """llama.cpp puts the first mark there by itself, where the tokenizer does."""
    first = "".join(str(chat.tokenizer.convert_ids_to_tokens(token)) for token in before_a_text(chat))
    before, behind = form.turns["system"]
    turns = {**form.turns, "system": (before if form.begin else before.removeprefix(first), behind)}
    return Form(form.begin.removeprefix(first), turns, form.answer)
