"""A phase is passed over only where every node was looked at and nothing speaks for it."""

from typing import Any

import pytest

from plugins.action.phases_left import in_doubt, reasons, to_run


def node(would: dict[str, str] | None = None, doubts: dict[str, bool] | None = None, **more: Any) -> dict[str, Any]:
    would = {"clock": "", "power": ""} if would is None else would
    doubts = dict.fromkeys(would, False) if doubts is None else doubts
    return {
        "__motley_as_left_seen": {"would": would, **more},
        "__motley_as_left_noted": {},
        "__motley_as_left_doubts": doubts,
    }


def verdict(**nodes: dict[str, Any]) -> dict[str, str]:
    found = {name: reasons(values) for name, values in nodes.items()}
    return {phase: in_doubt(phase, found) for phase in ("clock", "power")}


def test_what_nothing_speaks_for_is_passed_over() -> None:
    assert verdict(one=node(), two=node()) == {"clock": "", "power": ""}


def test_one_node_is_enough_to_run_a_phase() -> None:
    said = verdict(one=node(), two=node({"clock": "it is disabled", "power": ""}))
    assert said == {"clock": "two: it is disabled", "power": ""}


def test_what_the_controller_knows_speaks_too() -> None:
    assert verdict(one=node(doubts={"clock": False, "power": True}))["power"].startswith("one: something")


@pytest.mark.parametrize(
    "unseen",
    [
        {},
        node(failed=True),
        {**node(), "__motley_as_left_noted": {"failed": True}},
        {"__motley_as_left_seen": {"skipped": True}},
        node(doubts={}),
    ],
)
def test_what_was_not_looked_at_runs(unseen: dict[str, Any]) -> None:
    said = verdict(one=node(), two=unseen)
    assert said == dict.fromkeys(said, "two: it was not looked at")


def test_what_stands_on_a_phase_that_runs_runs_too() -> None:
    order, stands_on = ["driver", "env", "run", "room"], {"env": "driver", "room": "env"}
    fine = dict.fromkeys(order, "")
    assert to_run(order, stands_on, {"one": fine}) == {}
    assert list(to_run(order, stands_on, {"one": {**fine, "driver": "old"}})) == ["driver", "env", "room"]
    assert list(to_run(order, stands_on, {"one": {**fine, "env": "damaged"}})) == ["env", "room"]
