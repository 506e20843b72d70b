"""./motley wake: who is sent for, from where, and what is said of those who wake and of those who do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console import wake
from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.inventory.read import Inventory
from plugins.module_utils.motley import waking
from tests.support.stand_ins import PlayedTime
from train.errors import BadInput

MAC = "02:77:00:00:00:02"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """b and c are off; a packet for b wakes it at the second try."""
    state: dict[str, Any] = {"off": {"b", "c"}, "sent": [], "sends": {"a", "b", "c"}}

    class Fake(LocalNode):
        def answering(self) -> str:
            if self.name in state["off"]:
                raise Silent("nobody answers")
            return self.name

        def wake(self, macs: list[str], broadcast: str) -> dict[str, Any]:
            if self.name not in state["sends"]:
                raise Silent("it hangs")
            state["sent"].append((self.name, macs, broadcast))
            state["off"] -= {"b"} if len(state["sent"]) == 2 and MAC in macs else set()
            return {}

    monkeypatch.setattr(wake, "from_inventory", lambda _: [Fake(name=name, home="~") for name in "abc"])
    monkeypatch.setattr(wake.Sender, "is_here", lambda _: False)
    monkeypatch.setattr(wake, "time", PlayedTime())
    return state


def inventory(folder: Path, **cards: Any) -> Inventory:
    (folder / "cards.json").write_text(json.dumps(cards))
    nodes = {name: {"motley_subnet": "10.77.0.0/24", "motley_state": str(folder)} for name in "abc"}
    return Inventory(path=Path("x"), nodes=nodes)


def test_who_wakes_is_told_and_who_does_not_is_named(
    house: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = {"b": {"mac": MAC, "wake_on": "armed"}, "c": {"mac": "02:77:00:00:00:03", "wake_on": ""}}
    assert wake.wake(inventory(tmp_path, **cards), []) == 1
    said = capsys.readouterr().out
    assert "a  is awake" in said and "b  awake after 5 s" in said and "b  is awake" not in said
    assert "c  did not wake within 60 s: bootstrap found that its network card cannot be woken" in said
    assert house["sent"][0] == ("a", [MAC, "02:77:00:00:00:03"], "10.77.0.255")
    assert house["sent"][-1][1] == ["02:77:00:00:00:03"], "one that is awake is left alone"


def test_the_first_that_is_awake_sends_and_the_next_where_it_hangs(house: dict[str, Any], tmp_path: Path) -> None:
    house["off"], house["sends"] = {"c"}, {"b"}
    wake.wake(inventory(tmp_path, c={"mac": MAC, "wake_on": "armed"}), ["c"])
    assert {name for name, *_ in house["sent"]} == {"b"}


def test_nobody_is_awake_on_that_side_of_the_network(
    house: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house["off"] = {"a", "b", "c"}
    assert wake.wake(inventory(tmp_path, b={"mac": MAC, "wake_on": "armed"}), ["a", "b"]) == 1
    said = capsys.readouterr().out
    assert "a  did not wake: its network card is not known" in said
    assert "b  did not wake: nobody who is awake is in 10.77.0.0/24" in said


def test_where_all_are_awake_or_the_name_is_none_nothing_is_sent(house: dict[str, Any], tmp_path: Path) -> None:
    assert wake.wake(inventory(tmp_path), ["nosuch"]) == 0 and house["sent"] == [], "it is left to the plan"
    house["off"] = set()
    assert wake.wake(inventory(tmp_path), []) == 0 and house["sent"] == []


def test_machines_without_a_network_of_their_own_are_refused(house: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="in no network"):
        wake.wake(Inventory(path=Path("x"), nodes={name: {} for name in "abc"}), [])


def test_a_packet_is_what_a_card_waits_for() -> None:
    """As AMD's paper has it: six times 0xff, sixteen times the address."""
    assert waking.packet(MAC) == b"\xff" * 6 + bytes([2, 0x77, 0, 0, 0, 2]) * 16


def test_what_bootstrap_saw_is_kept_beside_what_others_know(tmp_path: Path) -> None:
    nic = {"name": "enp1s0", "mac": MAC, "wake_on": "armed", "addresses": ["10.77.0.12/24"]}
    wifi = {"name": "wlan0", "mac": "x", "wake_on": "", "addresses": []}
    look = {"node": {"nics": [wifi, nic]}}
    moved = {"motley_address": "10.77.0.99", "motley_preflight_reached": "10.77.0.12", "motley_preflight_look": look}
    assert wake.card_of(moved)["mac"] == MAC, "it was looked at before its address changed"
    found = wake.card_of({"motley_address": "10.77.0.12", "motley_preflight_look": look})
    assert found == {"name": "enp1s0", "mac": MAC, "wake_on": "armed"}
    wake.remember(tmp_path, {"b": found})
    wake.remember(tmp_path, {"c": {"mac": "y"}})
    nodes = {"a": {"motley_mac": "z", "motley_state": str(tmp_path)}, "b": {"motley_mac": "q"}}
    cards = wake.known(Inventory(path=Path("x"), nodes=nodes))
    assert {name: card["mac"] for name, card in cards.items()} == {"a": "z", "b": MAC, "c": "y"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"b": "x"}'])
def test_what_is_known_of_the_cards_is_made_again_where_its_file_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "cards.json").write_text(text)
    nodes = {"b": {"motley_mac": MAC, "motley_state": str(tmp_path)}}
    assert wake.known(Inventory(path=Path("x"), nodes=nodes)) == {"b": {"mac": MAC}}
    wake.remember(tmp_path, {"c": {"mac": "y"}})
    assert json.loads((tmp_path / "cards.json").read_text()) == {"c": {"mac": "y"}}
