"""What ./motley launch asks before anything is started, and whom it wakes first."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from console import launch_commands, launch_playbook
from console.__main__ import checked
from console.command_line.verbs import parser
from console.infra.node import Node, Silent
from console.inventory.read import Inventory
from tests.support.live_run import LiveRun

HOUSE = Inventory(path=Path("x"), nodes={"a": {}, "b": {}})


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(launch_playbook, "launch", lambda *_, **__: found.append("launched") or 0)
    monkeypatch.setattr(launch_commands.wake, "wake", lambda _, names: found.append(("woken", names)) or 1)
    return found


def types(*words: str) -> int:
    asked = vars(parser("launch").parse_args(["--model", "tiny", *words]))
    return launch_commands.launch(HOUSE, **{name: asked[name] for name in asked if name not in ("inventory", "infra")})


@pytest.mark.parametrize("words", [["--then", "poweroff"], ["--set", "then=poweroff"]])
def test_nobody_at_a_terminal_agrees_to_machines_that_switch_off(
    launched: list[Any], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert types(*words) == 1 and launched == []
    assert "a minute after the run a, b are switched off" in capsys.readouterr().out
    assert types(*words, "--yes", "--nodes", "all") == 0 and launched == ["launched"]
    assert "a minute after the run a, b are switched off" in capsys.readouterr().out
    assert types(*words, "--yes", "--json") == 0
    printed = capsys.readouterr()
    assert printed.out == "" and "are switched off" in printed.err, "beside the data"


@pytest.mark.parametrize(("text", "code"), [("then: suspend\nnodes: [b]\n", 1), ("$ANSIBLE_VAULT;1.1;AES256\n36\n", 0)])
def test_a_file_of_settings_is_asked_about_where_it_can_be_read(
    launched: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    (tmp_path / "night.yml").write_text(text)
    assert types("--set", f"@{tmp_path}/night.yml") == code
    assert ("a minute after the run b go to sleep" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(("said", "code"), [("y", 0), ("", 1), ("no", 1)])
def test_who_is_at_a_terminal_is_asked(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: said)
    assert types("--then", "suspend", "--nodes", "b") == code
    assert launched == ["launched"] * (code == 0)


def test_what_is_null_in_a_file_is_not_asked_for(launched: list[Any], tmp_path: Path) -> None:
    (tmp_path / "run.yml").write_text("then: null\nnodes: null\nreport_to:\n")
    assert types("--wake", "--set", f"@{tmp_path}/run.yml") == 0
    assert launched == [("woken", []), "launched"]
    assert launch_commands.as_text(None) == ""


def test_machines_are_woken_first_and_the_plan_says_what_is_still_off(launched: list[Any]) -> None:
    for nodes, names in (("", []), ("all", []), ("a,b", ["a", "b"])):
        assert types("--wake", "--nodes", nodes) == 0
        assert launched[-2:] == [("woken", names), "launched"]


def test_a_live_page_is_there_as_long_as_somebody_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LiveRun(tmp_path / "live") as run, launch_playbook.live_page(checked(run.inventory), "qa"):
        said = capsys.readouterr().out
        assert said.startswith("live page: http://127.0.0.1:") and "?token=" in said
        port = int(said.split(":")[3].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), 10), launch_playbook.live_page(checked(run.inventory), "qa"):
            assert "no live page: port" in capsys.readouterr().out, "where the port is taken the run continues"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()


@pytest.mark.timeout(30)
def test_a_page_that_does_not_end_holds_up_no_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "console.py").write_text(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('http://here', flush=True); signal.pause()"
    )
    monkeypatch.setattr(launch_playbook, "ROOT", tmp_path)
    monkeypatch.setattr(launch_playbook, "PAGE_ENDS_S", 0.2)
    inventory = cast(Inventory, SimpleNamespace(path=tmp_path))
    with launch_playbook.live_page(inventory, "qa"):
        pass


def test_after_a_broken_off_launch_a_node_that_loads_nothing_early_still_shows_what_runs() -> None:
    class Elsewhere:
        def unload(self) -> None:
            raise Silent("that is for machines of your own")

        def status(self) -> dict[str, object]:
            return {"on": True}

    assert launch_playbook.left_on(cast(Node, Elsewhere())) == {"on": True}


@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_that_waits_in_the_queue_has_a_receipt(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queued = {"run": "new", "nodes": ["a"], "after": ["notes"]}
    monkeypatch.setattr(launch_playbook, "started_by", lambda *_, **__: {"queued": queued})
    assert launch_playbook.launch(HOUSE, [], as_json=as_json, following=True) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"event": "queued", **queued} if as_json else printed == ""


@pytest.mark.parametrize("following", [True, False])
def test_as_data_it_says_what_was_started_and_then_what_the_run_does(
    following: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = {"run": "new", "nodes": ["a"], "since": 1.0, "follow": following}
    monkeypatch.setattr(launch_playbook, "started_by", lambda *_, **__: started)
    nodes = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
    monkeypatch.setattr(launch_playbook, "from_inventory", lambda _: nodes)
    monkeypatch.setattr(launch_playbook, "show_as_json", lambda nodes, _: len(nodes) + 2)
    assert launch_playbook.launch(HOUSE, [], as_json=True, following=following) == (3 if following else 0)
    assert json.loads(capsys.readouterr().out) == {"event": "started", "run": "new", "nodes": ["a"]}


@pytest.mark.parametrize(("ansible", "code"), [(0, 0), (1, 1), (2, 2), (4, 1), (8, 1), (250, 1), (130, 130)])
def test_a_plan_ends_with_an_exit_code_of_ours_and_says_at_once_that_it_works(
    ansible: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def run(*_: Any, **__: Any) -> SimpleNamespace:
        said.append(capsys.readouterr().out)
        return SimpleNamespace(returncode=ansible)

    monkeypatch.setattr(launch_playbook.subprocess, "run", run)
    monkeypatch.setattr("sys.stderr.fileno", lambda: 2)
    assert launch_playbook.plan(HOUSE, []) == code and said == ["checking your request …\n"]
    assert launch_playbook.plan(HOUSE, [], as_json=True) == code and said[1:] == [""]
