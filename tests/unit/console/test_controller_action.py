"""What every task that runs on the controller has in common, and how far it finds a node's clock to be off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.controller_action import Facts, OnController, off_by
from train.errors import BadInput

SECONDS = st.floats(0, 100)


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


@given(st.floats(-1e5, 1e5), SECONDS, SECONDS, SECONDS)
def test_what_is_told_is_certain(off_s: float, there_s: float, busy_s: float, back_s: float) -> None:
    first = there_s + off_s
    told = off_by(0.0, first, first + busy_s, there_s + busy_s + back_s)
    assert abs(told) <= abs(off_s) + 1e-6 and told * off_s >= 0
    assert abs(off_s) - abs(told) <= max(there_s, back_s) + 1e-6


def test_a_slow_way_is_no_fault_of_the_clock() -> None:
    assert off_by(0.0, 12.0, 12.5, 13.0) == 0
    assert off_by(0.0, 40.0, 40.5, 1.0) == 39.5
    assert off_by(0.0, -40.0, -39.5, 1.0) == -40.0
