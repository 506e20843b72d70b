"""The controller's sender: told once, never in the way, and the address nowhere but in memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import launch_records, notify, run_commands, run_view
from console.follow import Follower, finished_notices
from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.inventory.check import check
from console.inventory.read import Inventory
from console.notify import Notifier, Pipe
from console.run_in_words import RunView
from tests.support.folders import inventory_of
from tests.support.plans import launch_plan, node
from tests.support.webhook import Webhook, webhook
from train.errors import BadInput
from train.notify import PAUSES_S, TIMEOUT_S, Notice
from train.runlog import paths
from train.runlog.state import RunState

DONE = Notice("done", "r", "done · 7 steps", "4")


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return inventory_of(tmp_path, {"a": tmp_path / "a"})


def keep(inventory: Inventory, value: str, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """Locked by ansible-vault, beside the inventory; the password lies where Ansible looks for it."""
    password = inventory.path.parent / "password"
    password.write_text("a password for this test\n")
    program = Path(sys.executable).with_name("ansible-vault")
    words = [program, "encrypt_string", "--vault-password-file", password, "--stdin-name", "motley_notify"]
    locked = subprocess.run(words, input=value, capture_output=True, text=True, check=True).stdout
    (inventory.path / "group_vars").mkdir(exist_ok=True)
    (inventory.path / "group_vars/cluster.yml").write_text(locked)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    found = check(inventory.path)
    assert not found.findings
    return found


def test_a_thing_is_told_once_whoever_follows(server: Webhook, tmp_path: Path) -> None:
    for _ in range(2):
        notifier = Notifier(server.address, tmp_path / "told")
        notifier.tell(DONE)
        notifier.tell(DONE)
        notifier.finish(5)
        assert notifier.problem() == ""
    assert len(server.got) == 1
    files = list((tmp_path / "told").iterdir())
    assert [file.name for file in files] == ["done-4"] and files[0].stat().st_size == 0


def test_what_was_not_sent_is_said_once_and_left_to_the_next(server: Webhook, tmp_path: Path) -> None:
    notifier = Notifier("", tmp_path, send=lambda *_: "it answered HTTP 404")
    notifier.tell(DONE)
    notifier.finish(5)
    assert notifier.problem() == "! a notification was not sent: it answered HTTP 404   see: ./motley notify-test"
    assert notifier.problem() == ""
    again = Notifier(server.address, tmp_path)
    again.tell(DONE)
    again.finish(5)
    assert len(server.got) == 1


def test_who_leaves_does_not_wait_for_a_sender_that_hangs(tmp_path: Path) -> None:
    notifier = Notifier("", tmp_path, send=lambda *_: time.sleep(30) or "")
    notifier.tell(DONE)
    began = time.monotonic()
    notifier.finish(0.2)
    assert time.monotonic() - began < 5 and not list(tmp_path.iterdir())
    assert "a notification was not sent: no answer within 0 s" in notifier.problem()


def test_the_end_of_a_run_waits_for_every_try_of_its_message() -> None:
    assert (len(PAUSES_S) + 1) * TIMEOUT_S + sum(PAUSES_S) < notify.FINISH_S


def test_ctrl_c_ends_the_wait_for_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = Notifier("", tmp_path, send=lambda *_: time.sleep(30) or "")
    notifier.tell(DONE)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(notifier.thread, "join", interrupted)
    notifier.finish(40)
    assert notifier.problem() and not list(tmp_path.iterdir())


def test_the_follower_tells_the_end(server: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = '{"event": "ended", "time": 10.0, "epoch": 1, "nodes": [], "done": true, "reason": "all steps"}'
    words = ["sh", "-c", f"echo 'member {ended}'; exec sleep 60"]
    events: Any = lambda *_: subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)  # noqa: E731
    monkeypatch.setattr(LocalNode, "events", events)
    view, said = RunView(RunState(run="r"), ["a"]), list[str]()
    notifier = Notifier(server.address, tmp_path)
    with finished_notices(view, notifier, said.append):
        Follower([LocalNode(name="a", home="")], view, said.append, lambda: None, notifier).follow(limit_s=5)
        assert not server.got
    assert b"r: done" in server.got[0][2] and not said


@pytest.mark.parametrize("done", [True, False])
def test_the_end_is_shown_before_its_message_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    ended = f'{{"event": "ended", "time": 10.0, "epoch": 1, "nodes": [], "done": {str(done).lower()}, "reason": ""}}'
    words = ["sh", "-c", f"echo 'member {ended}'; exec sleep 60"]
    events: Any = lambda *_: subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)  # noqa: E731
    monkeypatch.setattr(LocalNode, "events", events)
    said: list[str] = []
    for module in (run_view, run_commands):
        monkeypatch.setattr(module, "say", said.append, raising=False)
    notifier = Notifier("", tmp_path, send=lambda *_: said.append("sent") or "")
    monkeypatch.setattr(run_view.Screen, "tick", lambda _: None)
    run_commands.show([LocalNode(name="a", home="")], RunView(RunState(run="r"), ["a"]), notifier)
    assert said[-1] == "sent" and ("done" if done else "failed") in said[0]


def test_the_address_comes_from_the_vault(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notify.address_of(inventory, "") == ""
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    assert notify.address_of(found, "") == "https://ntfy.example/secret"
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    with pytest.raises(BadInput, match="locked by ansible-vault") as why:
        notify.address_of(found, "")
    assert str(why.value).endswith("fix: add --vault ask")


def test_a_locked_vault_is_one_line_to_the_follower(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    assert notify.for_follower(found, "r", "") is None
    assert capsys.readouterr().err.count("\n") == 1


def test_plain_text_is_refused_and_not_repeated(inventory: Inventory) -> None:
    (inventory.path / "group_vars").mkdir()
    values = {"motley_notify": "https://ntfy.example/secret"}
    (inventory.path / "group_vars/cluster.yml").write_text(yaml.safe_dump(values))
    (finding,) = check(inventory.path).findings
    assert "'motley_notify' stands here in plain text" in str(finding) and "example/secret" not in str(finding)


def test_the_playbook_hands_the_address_over_in_memory(tmp_path: Path) -> None:
    notify.hand_over("nobody reads", tmp_path)
    assert not list(tmp_path.iterdir())
    with Pipe(tmp_path) as pipe:
        assert pipe.read() == ""
        notify.hand_over("https://ntfy.example/secret", tmp_path)
        assert (tmp_path / Pipe.NAME).stat().st_size == 0
        assert pipe.read() == "https://ntfy.example/secret"
    assert [file.name for file in tmp_path.iterdir()] == [Pipe.NAME]


@pytest.mark.parametrize("unlocks", [True, False])
def test_a_real_playbook_shows_no_part_of_the_address(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlocks: bool
) -> None:
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    if not unlocks:
        monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    folder = tmp_path / "launch"
    folder.mkdir()
    task = {"run_follow": {"run": "r", "follow": True, "every_s": 1, "tell_in": str(folder / "started.json")}}
    known = {"motley_state_folder": str(tmp_path), "motley_start_done": {"started": {"time": 1.0, "up": 2.0}}}
    (found.path / "group_vars/all.yml").write_text(yaml.safe_dump(known))
    play = [{"hosts": "cluster", "gather_facts": False, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    with Pipe(folder) as pipe:
        command = [Path(sys.executable).with_name("ansible-playbook"), "-vvv", "-i", found.path, tmp_path / "play.yml"]
        done = subprocess.run(command, cwd=notify.ROOT, capture_output=True, text=True, check=True)
        assert pipe.read() == ("https://ntfy.example/secret" if unlocks else "")
    assert "example/secret" not in done.stdout + done.stderr + (folder / "started.json").read_text()
    assert ("no messages are sent from here" in done.stdout) != unlocks


def test_a_launch_forgets_what_an_older_run_of_its_name_told(server: Webhook, tmp_path: Path) -> None:
    for _ in range(2):
        notifier = notify.for_launch(tmp_path, "r", server.address)
        assert notifier
        notifier.tell(DONE)
        notifier.finish(5)
    assert len(server.got) == 2
    assert notify.for_launch(tmp_path, "r", "") is None


def test_notify_test_says_who_can(
    inventory: Inventory, server: Webhook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match="motley_notify is not set"):
        notify.test(inventory, vault="")
    found = keep(inventory, server.address, monkeypatch)
    assert notify.test(found, vault="") == 0 and "✓ this controller  sent in" in capsys.readouterr().out
    server.answers = [404]
    assert notify.test(found, vault="") == 1
    said = capsys.readouterr().out
    assert "✗ this controller  it answered HTTP 404" in said and "secret" not in said


# -- where the nodes send ----------------------------------------------------------------------------------------------


def sent_from(inventory: Inventory, where: str) -> Inventory:
    hosts = yaml.safe_load((inventory.path / "hosts.yml").read_text())
    hosts["cluster"]["vars"]["motley_notify_from"] = where
    (inventory.path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    return check(inventory.path)


def test_who_sends_is_one_of_two(inventory: Inventory) -> None:
    assert not sent_from(inventory, "nodes").findings and not sent_from(inventory, "controller").findings
    (finding,) = sent_from(inventory, "node").findings
    assert "motley_notify_from is 'node'" in str(finding) and "it expects controller or nodes" in str(finding)


def test_the_follower_sends_nothing_where_the_nodes_do(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sent_from(keep(inventory, "https://ntfy.example/secret", monkeypatch), "controller")
    assert notify.for_follower(found, "r", "")
    found = sent_from(found, "nodes")
    assert notify.for_follower(found, "r", "") is None
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")  # nor does it ask for the password
    assert notify.for_follower(found, "r", "") is None and capsys.readouterr().err == ""


def test_the_plan_says_that_the_address_lies_on_the_nodes() -> None:
    values = {"motley_notify": "https://ntfy.example/secret", "motley_notify_from": "nodes"}
    (line,) = notify.plan_lines({"a": values, "b": values})
    assert line == "  messages  the nodes send them: the address of motley_notify lies on a, b (config/notify, 0600)"
    assert notify.plan_lines({"a": values | {"motley_notify_from": "controller"}}) == []
    assert notify.plan_lines({"a": {"motley_notify_from": "nodes"}}) == []


def test_a_launch_of_nodes_that_are_to_send_wants_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            if name == "motley_notify":
                raise ValueError("Attempting to decrypt but no vault secrets found")
            return "nodes"

    with pytest.raises(BadInput, match="locked by ansible-vault") as why:
        notify.plan_lines({"a": Locked()})
    assert "fix: ./motley launch --vault ask   (ansible-playbook: --ask-vault-pass)" in str(why.value)


def test_a_launch_brings_the_address_and_another_takes_it_away(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    nodes = [node("a", address="127.0.0.1", home=str(tmp_path / "a"))]
    plan = launch_plan({"run": "r", "model": "tiny", "dataset": "qa", "device": "cpu"}, run="r", nodes=nodes)
    ports = {"presence_port": 29400, "group_ports": [29410, 29489]}
    given = {
        "plan": plan.to_json(),
        "token": "5f",
        "ports": ports,
        "environment": {},
        "state_folder": str(tmp_path / "state"),
    }
    task = {"launch_files": given, "diff": True}
    play = [{"hosts": "cluster", "gather_facts": False, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    command = [Path(sys.executable).with_name("ansible-playbook"), "-vvv", "-i", found.path, tmp_path / "play.yml"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    file = tmp_path / "a" / paths.NOTIFY
    for where in ("nodes", "controller"):
        sent_from(found, where)
        done = subprocess.run(command, cwd=notify.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert "example/secret" not in done.stdout + done.stderr
        if where == "nodes":
            assert file.read_text() == "https://ntfy.example/secret\n" and file.stat().st_mode & 0o777 == 0o600
            assert (
                len([path for path in tmp_path.rglob("*") if path.is_file() and b"le/secret" in path.read_bytes()]) == 1
            )
    assert not file.exists()
    assert launch_records.known(tmp_path / "state")["r"]["given"] == plan.given


def test_each_node_is_tried_by_itself(
    inventory: Inventory,
    server: Webhook,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = sent_from(keep(inventory, server.address, monkeypatch), "nodes")
    assert notify.test(found, vault="") == 0
    assert "✓ this controller  sent in" in (said := capsys.readouterr().out) and "✓ a                sent\n" in said
    assert [b"a can send" in body for _, _, body in server.got] == [False, True]
    server.answers = [200, 404]
    assert notify.test(found, vault="") == 1
    said = capsys.readouterr().out
    assert "✗ a                it answered HTTP 404" in said and "secret" not in said
    server.answers = [404]
    assert notify.test(found, vault="") == 0, "the controller does not send"

    def off(_: object, __: object) -> list[str]:
        raise Silent("nobody answers at 127.0.0.1")

    monkeypatch.setattr(LocalNode, "command", off)
    assert notify.test(found, vault="") == 1
    assert "✗ a                nobody answers at 127.0.0.1" in capsys.readouterr().out


def test_no_argument_of_a_node_that_is_tried_has_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"tr '\\0' ' ' < /proc/$PPID/cmdline > {tmp_path}/words; true"
    assert LocalNode(name="it's", home="").try_notify(words) == {"why": ""}
    assert str(tmp_path) not in (tmp_path / "words").read_text()
