"""`./motley doctor` around its verdict: what it fixes, and what it prints where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.doctor import look
from console.doctor.readings_and_findings import Finding, Verdict
from console.inventory.read import Inventory
from console.playbook import run_playbook
from console.playbook.ask_passwords import Passwords


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
