"""What a node tells of its power, as its kernel lays it out, and of the phases' work, as its own programs show it."""

from functools import partial
from pathlib import Path

import pytest

from plugins.filter.motley import motley_ufw_allow, motley_ufw_deny
from plugins.module_utils.motley import doctor_machine, doctor_motley
from plugins.module_utils.motley.undo_record import Before
from train.power_supply import supplies


def supply(root: Path, name: str, **facts: str) -> None:
    (root / name).mkdir(exist_ok=True)
    for fact, value in facts.items():
        (root / name / fact).write_text(f"{value}\n")


def test_a_laptop_says_whether_it_is_charged_and_a_mouse_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine, "supplies", partial(supplies, tmp_path))
    supply(tmp_path, "hidpp_battery_0", type="Battery", scope="Device", status="Discharging", capacity="5")
    assert doctor_machine.power() == {"battery": False, "percent": "", "on_mains": True, "lid": ""}
    supply(tmp_path, "BAT0", type="Battery", status="Discharging", capacity="71")
    assert doctor_machine.power() == {"battery": True, "percent": "71", "on_mains": False, "lid": ""}
    supply(tmp_path, "ucsi", type="USB", online="1")
    assert doctor_machine.power()["on_mains"]
    supply(tmp_path, "ucsi", type="USB", online="0")
    supply(tmp_path, "BAT0", status="Full")
    assert not doctor_machine.power()["on_mains"], "its plug is out"


@pytest.mark.parametrize("ports", ["29400-29899", "31000-31499"])
def test_whom_ufw_lets_in_is_known_whichever_the_ports(
    ports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Before("firewall", tmp_path)
    rules = [motley_ufw_allow(("10.0.0.1", ports)), motley_ufw_allow(("10.0.0.2", ports)), motley_ufw_deny(ports)]
    for rule in rules:
        before.keep_undo(rule["undo"])
    added = [" ".join(["ufw", *rule["undo"][2:]]) for rule in (rules[0], rules[2])]
    answers = {"show": "\n".join([*added, "ufw allow from 10.0.0.7 to any port 22 proto tcp"])}
    answers["status"] = "Status: active"
    monkeypatch.setattr(doctor_motley.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor_motley, "says", lambda *command: answers[command[1]])
    monkeypatch.setattr(doctor_motley, "may_look", lambda: True)
    monkeypatch.setattr(doctor_motley, "Before", lambda _: before)
    gone = " ".join(rules[1]["undo"][2:])
    assert doctor_motley.firewall() == {"kind": "ufw", "on": True, "friends": ["10.0.0.1"], "gone": [gone]}
