"""`chat_template=FILE`: a template of one's own in place of the model's, as transformers writes them (Jinja). And
`system=TEXT`: a message before each conversation that has none."""

from __future__ import annotations

import re
from pathlib import Path

from train.errors import BadInput
from train.plan.model import data_sets

LARGEST, LONGEST = 100_000, 10_000
EXAMPLE = "docs/datasets.md#what-is-trained-on has an example"
GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
"""A tag of transformers' own, which says what an answer is; Motley finds out by itself."""


def read(name: str) -> str:
    """The template in that file; empty where none is named."""
    if not name:
        return ""
    file = Path(name).expanduser()
    try:
        text = file.read_text(encoding="utf-8") if file.stat().st_size <= LARGEST else ""
    except OSError as error:
        raise BadInput(f"chat_template: it cannot be read: {error.strerror}", f"file: {file}", EXAMPLE) from None
    except UnicodeDecodeError:
        raise BadInput("chat_template: it is not UTF-8 text", f"file: {file}", EXAMPLE) from None
    if "messages" not in text:
        what = "it says nothing of `messages`" if text else "it is empty, or too large for a template"
        raise BadInput(f"chat_template: {what}, so it is no chat template", f"file: {file}", EXAMPLE)
    require_jinja(text, file)
    return text


def require_system(text: str) -> None:
    """Requires that it is a message, where there is one."""
    if not text:
        return
    wrong = "it is empty" if not text.strip() else f"it has more than {LONGEST} characters" * (len(text) > LONGEST)
    if not wrong and "\n" not in text and data_sets.is_here(text):
        wrong = "it is a file, and the message itself is wanted"
    if wrong:
        raise BadInput(f"system: {wrong}", fix='write it out: system="Answer in one sentence."')


def require_jinja(text: str, file: Path) -> None:
    import jinja2

    try:
        jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False).parse(GENERATION.sub("", text))  # noqa: S701 - nothing is rendered
    except jinja2.TemplateSyntaxError as error:
        raise BadInput(f"chat_template: {error.message}", f"file: {file}, line {error.lineno}", EXAMPLE) from None
