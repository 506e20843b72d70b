"""What a node reports of the phases' work, as its own programs show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.filter.motley import motley_ufw_allow, motley_ufw_deny
from plugins.module_utils.motley import doctor_motley
from plugins.module_utils.motley.undo_record import Before


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
