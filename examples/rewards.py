"""Rewards for sums: the right number, behind the words that a program looks for."""

import re

SAID = re.compile(r"Answer: (-?\d+)")


def right(completions, answer, **columns):
    """1 where the number behind the last "Answer:" is the row's."""
    found = [SAID.findall(text_of(completion)) for completion in completions]
    return [float(said[-1:] == [str(wanted)]) for said, wanted in zip(found, answer, strict=True)]


def form(completions, **columns):
    """1 where the answer ends with one such line; so a model learns the form before it can add."""
    texts = [text_of(completion).strip() for completion in completions]
    return [float(len(SAID.findall(text)) == 1 and SAID.match(text.splitlines()[-1]) is not None) for text in texts]


def text_of(completion):
    """A chat's completion is a list of one message."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
