"""The question before a node restarts for its driver."""

from pathlib import Path

import pytest

from console import bootstrap
from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.playbook_progress import Progress
from console.playbook.run_playbook import Passwords

STOPPED = {"event": "runner_on_failed", "event_data": {"role": "motley_gpu_driver", "task": bootstrap.STOPPED}}


def stopped(host: str, msg: str) -> dict:
    return {**STOPPED, "event_data": {**STOPPED["event_data"], "host": host, "res": {"msg": msg}}}


def test_an_encrypted_disk_is_named_in_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, asked = Progress(), []
    why = "it must restart before its driver works: it runs module 570"
    progress.take(stopped("plain", f"{why}\nfix: say yes"))
    locked = "its disk is encrypted: the start waits at its passphrase, at the machine"
    progress.take(stopped("locked", f"{why}\n{locked}\nfix: say yes"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    assert bootstrap.ask(bootstrap.waiting(progress)) == ["plain", "locked"]
    assert asked == ["restart plain now? [y/N] ", f"restart locked now? {locked} [y/N] "]


def test_who_has_stopped_it_is_asked_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(request: object, passwords: object, progress: Progress) -> int:
        progress.take(stopped("plain", "it must restart before its driver works\nfix: say yes"))
        return interrupt.CODE

    monkeypatch.setattr(run_playbook, "run", run)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("it asks"))
    request = run_playbook.PlaybookRun(verb="bootstrap", playbook="bootstrap", inventory=Inventory(path=tmp_path))
    assert bootstrap.run(request, Passwords("", "")) == interrupt.CODE
