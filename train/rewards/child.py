"""The process of the rewards: one line of JSON asks it, one line answers, over pipes that a print does not reach.

Its first line has the functions, and what comes of them; each further one calls one of them:

    {"function": 0, "prompts": […], "completions": […], "columns": {"answer": […]}}
    {"values": [1.0, null]}  or  {"wrong": "raised ValueError: …", "rows": [1]}
"""

from __future__ import annotations

import inspect
import json
import math
import os
import resource
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from train.plan.settings.rewards import FILE
from train.rewards import confine
from train.rewards.built_in import function_of

Function = tuple[Callable[..., Any], str]
"""A function with its file, for the line of what it raises."""
MODULE = "rewards_of_a_file"
"""What it is called in its process, so that a file named as a library is hides none."""
MOST = 300
"""Characters of a message of the functions'."""


class ChildAnswer(TypedDict, total=False):
    """A line of the process of the rewards."""

    loaded: int
    """How many functions there are."""
    hidden: bool
    """Whether other processes are hidden from it."""
    missing: str
    """Why the file cannot be confined, and was not run."""
    wrong: str
    """What is wrong with a function, as the end of a sentence about it."""
    at: int
    """The number of that function."""
    rows: list[int]
    """The answers of which that is so."""
    values: list[float | None]


def main(asked: int, answered: int, parent: int, memory_bytes: int) -> None:
    confine.limit(memory_bytes)
    if os.getppid() != parent:
        os._exit(1)  # it was gone before the kernel watched it
    os.environ.clear()
    hidden, missing = confine.hide_other_processes(), confine.confine()
    functions: list[Function] = []
    with open(asked, encoding="utf-8") as requests, open(answered, "w", encoding="utf-8") as answers:
        for line in requests:
            request = json.loads(line)
            answer: ChildAnswer
            if "load" in request:
                answer = {**load(request["load"], functions, missing), "hidden": hidden}
            else:
                function, path = functions[request["function"]]
                answer = values_of(function, path, request)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def load(rewards: list[dict[str, str]], functions: list[Function], missing: str) -> ChildAnswer:
    """The file is run once, however many of its functions are asked for, and not at all where it is not confined."""
    if missing and any(reward["kind"] == FILE for reward in rewards):
        return {"missing": missing}
    modules: dict[str, types.ModuleType] = {}
    for at, reward in enumerate(rewards):
        if reward["kind"] != FILE:
            functions.append((function_of(reward["kind"], reward["argument"]), ""))
            continue
        path = reward["argument"]
        try:
            if path not in modules:
                modules[path] = run_file(path)
            functions.append((getattr(modules[path], reward["function"]), path))
        except BaseException as error:
            return {"wrong": f"could not be read: {described(error, path)}", "at": at}
    return {"loaded": len(functions)}


def run_file(path: str) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    module.__file__ = path
    sys.modules[MODULE] = module  # dataclasses and pickle look a class's module up
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)  # noqa: S102  it is what the owner asks for
    return module


def values_of(function: Callable[..., Any], path: str, request: Mapping[str, Any]) -> ChildAnswer:
    given = request["columns"] | {"prompts": request["prompts"], "completions": request["completions"]}
    expected = len(request["completions"])
    try:
        takes, needs = taken(function)
        if lacks := needs - given.keys():
            return {"wrong": f"takes {' and '.join(sorted(lacks))}, and the data has no such column"}
        answered = function(**{name: value for name, value in given.items() if takes is None or name in takes})
        if isinstance(answered, (str, bytes, dict, set, frozenset)) or not hasattr(answered, "__iter__"):
            return {"wrong": f"gave {shown(answered)} instead of a list of numbers"}
        values = list(answered)
        if len(values) != expected:
            return {"wrong": f"gave {len(values)} values for {expected} answers"}
        numbers = [as_number(value) for value in values]
    except BaseException as error:
        return {"wrong": f"raised {described(error, path)}"}
    bad = [row for row, value in enumerate(numbers) if value is not None and not math.isfinite(value)]
    answer = ChildAnswer(values=[None if row in bad else value for row, value in enumerate(numbers)])
    if bad:
        answer |= {"wrong": f"gave {shown(values[bad[0]])}, which is no number", "rows": bad}
    return answer


def taken(function: Callable[..., Any]) -> tuple[set[str] | None, set[str]]:
    """The names that it takes, nothing for any, and those of them that it cannot do without."""
    named = {name: p for name, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_POSITIONAL}
    everything = {name for name, p in named.items() if p.kind is p.VAR_KEYWORD}
    needs = {name for name, p in named.items() if p.default is p.empty} - everything
    return None if everything else set(named), needs


def as_number(value: Any) -> float | None:
    """The value as a number; None says that it does not apply to this answer, and what is no number is NaN here."""
    if value is None:
        return None
    return float(value) if hasattr(value, "__float__") else math.nan


def described(error: BaseException, path: str) -> str:
    """Its class and message, and the last line of the owner's file that it went through."""
    lines = []
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    where = f" (line {lines[-1]})" if lines else ""
    text = " ".join(str(error).split())[:MOST]
    if isinstance(error, MemoryError):
        text = f"it may have {resource.getrlimit(resource.RLIMIT_AS)[0] / 1e9:.3g} GB"
    return f"{type(error).__name__}{f': {text}' if text else ''}{where}"


def shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST // 3 else f"{text[: MOST // 3]}…"
