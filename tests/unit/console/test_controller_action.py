"""What every task that runs on the controller has in common."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from console.controller_action import Facts, OnController
from train.errors import BadInput


class Asked(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        if known["nodes"] != args["nodes"]:
            raise BadInput("other nodes", fix="fix: correct them")
        return {"of": known["nodes"]}


def ran(known: int, asked: int) -> Any:
    task = SimpleNamespace(args={"nodes": asked}, async_val=0, check_mode=False, diff=False)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="there"))
    return Asked(task, connection, None, None, None, None).run(task_vars={"nodes": known})


def test_it_answers_from_all_variables_and_from_what_the_task_says() -> None:
    assert ran(3, 3) == {"changed": False, "of": 3}


def test_what_a_person_got_wrong_is_the_tasks_message() -> None:
    found = ran(3, 4)
    assert found["failed"]
    assert found["msg"] == "other nodes\nfix: correct them"
