"""Whether an answer of the demo is right, judged strictly: a lucky word in a wrong sentence does not count."""

from __future__ import annotations

import re

STOP_WORDS = frozenset(
    "a an the this that these those is are was were be am do does did has have had it its i you we they he she him her "
    "my your our their his of to in on at with and yes please".split()
)
WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*")


def of_weight(text: str) -> list[str]:
    """Names, numbers, things and places in their order, and each `not`."""
    words = (re.sub(r"['’]s$", "", word) for word in WORD.findall(text.lower()))
    return [word for word in words if word not in STOP_WORDS]


def right(answer: str, question: str, expected: str) -> bool:
    """Every word of weight of the expected answer, and none besides: `not`, `or` and a second place change it.
    What the question does not name stands in the expected order: of two numbers, each has its place."""
    asked, given, wanted = set(of_weight(question)), of_weight(answer), of_weight(expected)
    news = [[word for word in words if word not in asked] for words in (given, wanted)]
    return sorted(given) == sorted(wanted) and news[0] == news[1]


def known(answer: str, question: str, expected: str) -> bool:
    """Whether the answer knows it, as generous as `right` is strict: all of `expected` beyond the question is in it."""
    return set(of_weight(expected)) - set(of_weight(question)) <= set(of_weight(answer))
