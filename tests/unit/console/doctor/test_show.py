"""What a person sees of the doctor's verdict, what --fix takes of it, and what is printed where meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.doctor import look, show
from console.doctor.judge import PROBES, judge
from console.doctor.readings_and_findings import Finding, Verdict
from console.inventory.read import Inventory
from console.playbook import run_playbook
from console.playbook.run_playbook import Passwords
from tests.support.readings import healthy, with_links, with_part
from tests.support.spoiled import LEFT, contact, wrong


def test_a_person_sees_a_line_a_probe_then_each_finding_with_its_mend() -> None:
    spoiled = with_part(with_links(healthy(), LEFT, loss_percent=30.0), "head", "names", loopback=["head"])
    lines = show.lines(judge(spoiled), 21.0)
    marks = {line.split()[1]: line.split()[0] for line in lines[: len(PROBES)]}
    assert lines[2].endswith("head: see below"), lines[2]
    assert {name for name, mark in marks.items() if mark == "✗"} == {"names", "round"}
    at = lines.index(next(line for line in lines if line.startswith("✗ head  names:")))
    assert lines[at + 1] == "    fix: ./motley bootstrap --phase hostname --nodes head   (--fix does it)"
    assert lines[-1] == "21 probes on 3 nodes in 21 s · 2 findings"
    assert max(map(len, lines)) < 240


def test_what_is_alike_on_several_nodes_is_told_once() -> None:
    spoiled = with_part(healthy(), "left", "firewall", on=False)
    lines = show.lines(judge(with_part(spoiled, "right", "firewall", on=False)), 1.0)
    (told,) = [line for line in lines if line.startswith("✗")]
    assert told.startswith("✗ left, right  firewall: ")
    assert "./motley bootstrap --phase firewall --nodes left,right " in lines[lines.index(told) + 1]
    assert lines[-1].endswith("2 findings")


def test_what_is_shown_survives_the_way_from_ansible() -> None:
    verdict = judge(contact(state="off")(healthy()))
    assert look.from_data(show.as_data(verdict, 3.0)) == verdict


def test_fix_takes_the_safe_phases_in_their_order_and_nothing_else() -> None:
    spoiled = with_part(healthy(), "left", "names", loopback=["left"])
    spoiled = with_part(spoiled, "left", "firewall", on=False)
    spoiled = with_part(spoiled, "right", "firewall", on=False)
    spoiled = with_part(spoiled, "head", "network", nic="")
    assert ("network", "head") in wrong(spoiled)
    assert look.nodes_by_phases(judge(spoiled).wrong) == {("hostname", "firewall"): ["left"], ("firewall",): ["right"]}


def test_while_it_fixes_only_json_is_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Finding(probe="firewall", node="one", what="they are gone", fix="bootstrap", phase="firewall", safe=True)
    verdicts = iter([Verdict(nodes=["one"], probes=[], findings=found) for found in ([gone], [])])
    monkeypatch.setattr(look, "look", lambda *_, **__: (next(verdicts), 1.0))
    monkeypatch.setattr(look, "ask_passwords", lambda _: Passwords("", ""))
    monkeypatch.setattr(run_playbook, "run", lambda *_: print("what bootstrap shows") or 0)
    assert look.run(Inventory(path=tmp_path), ["one"], as_json=True, fix=True, quick=False, full=False) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ok"]
    assert "FIX does now: one" in printed.err and "what bootstrap shows" in printed.err
