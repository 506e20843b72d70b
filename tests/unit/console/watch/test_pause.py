"""./motley pause and unpause: which machines, for how long, and what is said of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.command_line.verbs import parser
from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.inventory.read import Inventory
from console.watch import pause
from train.errors import BadInput


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """b is off, c runs a script."""
    calls: list[tuple[str, str]] = []

    class Fake(LocalNode):
        def pause(self, lasts: str) -> dict[str, Any]:
            calls.append((self.name, lasts))
            if self.name == "b":
                raise Silent("nobody answers")
            if self.name == "c":
                return {"failed": "the script t.py is running\nfix: ./motley stop"}
            return {"was_on": True, "until": "until 18:00", "left": [], "seconds": 1.25}

        def unpause(self) -> dict[str, Any]:
            calls.append((self.name, "unpause"))
            return {"was": self.name == "a", "was_on": True}

    nodes = [Fake(name=name, home="~") for name in "abc"]
    monkeypatch.setattr(pause, "from_inventory", lambda _: nodes)
    return calls


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(path=Path("x"), nodes={name: {} for name in "abc"})


def test_one_machine(asked: list[Any], inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    assert pause.pause(inventory, ["a"], lasts="2h") == 0
    assert asked == [("a", "2h")]
    said = capsys.readouterr().out
    assert (
        "a  paused until 18:00 · its memory is free after 1.2 s" in said and "back: ./motley unpause --nodes a" in said
    )


def test_what_did_not_work_is_said(asked: list[Any], inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    assert pause.pause(inventory, ["a", "c"], lasts="") == 1
    assert capsys.readouterr().out.endswith("unpause --nodes a\n")
    assert pause.pause(inventory, ["b", "c"], lasts="") == 1
    said = capsys.readouterr().out
    assert (
        "b  not paused: nobody answers" in said
        and "c  not paused: the script t.py is running · fix: ./motley stop" in said
    )


def test_all_may_come_back(asked: list[Any], inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    assert pause.unpause(inventory, []) == 0
    assert [name for name, _ in asked] == ["a", "b", "c"]
    said = capsys.readouterr().out
    assert "a  may train again; it rejoins the run" in said and "b  was not paused" in said


def test_without_a_name_or_with_no_time_nothing_is_done(asked: list[Any], inventory: Inventory) -> None:
    with pytest.raises(BadInput, match=r"./motley pause --nodes c"):
        pause.pause(inventory, [], lasts="")
    with pytest.raises(BadInput, match="--for 2h"):
        pause.pause(inventory, ["a"], lasts="soon")
    assert not asked


@pytest.mark.parametrize("words", [["a", "--for", "2h"], ["--for", "2h", "a"], ["--node", "a", "--for=2h"]])
def test_a_node_and_its_time_in_any_order(words: list[str]) -> None:
    args = parser("pause").parse_args(words)
    assert args.limit == "a" and args.lasts == "2h"
    assert parser("unpause").parse_args([]).limit == "" and parser("pause").parse_args(["a", "b"]).limit == "a b"
