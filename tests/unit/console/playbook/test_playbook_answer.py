"""A command asks the playbook that it starts for one value."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from console.playbook import playbook_answer
from tests.support.cluster import REPOSITORY

PLAYBOOK = (
    "import sys, json; from console.playbook import playbook_answer as answer; "
    "[answer.give(one) for one in json.load(sys.stdin)]"
)


def answered(results: list[dict[str, Any]], name: str = "plan") -> Any:
    with playbook_answer.asked_for(name) as answer:
        command = [sys.executable, "-c", PLAYBOOK]
        text = playbook_answer.json.dumps(results)
        subprocess.run(command, input=text, text=True, check=True, cwd=REPOSITORY, **answer.inherited(more="x"))
        return answer.read()


def test_the_last_task_that_returns_it_counts() -> None:
    assert answered([{"plan": {"run": "a longer name"}}, {"changed": True}, {"plan": {"run": "b"}}]) == {"run": "b"}


def test_nothing_where_no_task_returns_it() -> None:
    assert answered([{"changed": True}]) is None


def test_a_playbook_that_a_person_types_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(playbook_answer.WANTED, raising=False)
    playbook_answer.give({"plan": {}})
    assert playbook_answer.wanted() == ""
