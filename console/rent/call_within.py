"""A call that is given up after its time, whatever it waits for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


def within(limit_s: float, call: Callable[[], Answer]) -> Answer:
    """Returns what the call returns. After a TimeoutError it continues in a thread, which ends with this process."""
    answers: list[Answer] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    for error in errors:
        raise error
    for answer in answers:
        return answer
    raise TimeoutError(f"not within {limit_s:g} s")
