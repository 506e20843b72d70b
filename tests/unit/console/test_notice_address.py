"""The address of messages: locked on the controller, brought to the nodes by a launch, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from console import launch_records, notice_address
from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.inventory.check import check
from console.inventory.read import Inventory
from tests.support import pace
from tests.support.folders import inventory_of
from tests.support.plans import launch_plan, node
from tests.support.webhook import Webhook, webhook
from train.errors import BadInput
from train.runlog import paths
from train.runlog.secret import Secret, secret_of
from train.send_notice import Notice

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
    locked = VaultLib().encrypt(value, VaultSecret(password.read_bytes().strip())).decode()
    (inventory.path / "group_vars").mkdir(exist_ok=True)
    (inventory.path / "group_vars/cluster.yml").write_text(f"motley_notify: !vault |\n{indent(locked, '  ')}")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    found = check(inventory.path)
    assert not found.findings
    return found


def test_the_address_comes_from_the_vault(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notice_address.address_of(inventory, "") == ""
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    assert notice_address.address_of(found, "") == "https://ntfy.example/secret"
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    with pytest.raises(BadInput, match="locked by ansible-vault") as why:
        notice_address.address_of(found, "")
    assert str(why.value).endswith("fix: add --vault ask")


def test_plain_text_is_refused_and_not_repeated(inventory: Inventory) -> None:
    (inventory.path / "group_vars").mkdir()
    values = {"motley_notify": "https://ntfy.example/secret"}
    (inventory.path / "group_vars/cluster.yml").write_text(yaml.safe_dump(values))
    (finding,) = check(inventory.path).findings
    assert "'motley_notify' stands here in plain text" in str(finding) and "example/secret" not in str(finding)


def test_the_plan_says_that_the_address_lies_on_the_nodes() -> None:
    (line,) = notice_address.plan_lines("on a, b (config/secret.json, 0600)")
    said = "messages  the nodes send them: the address of motley_notify lies on a, b (config/secret.json, 0600)"
    assert line.strip() == said
    assert notice_address.plan_lines("") == []


def test_a_launch_wants_the_password() -> None:
    class Locked(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            raise ValueError("Attempting to decrypt but no vault secrets found")

    with pytest.raises(BadInput, match="locked by ansible-vault") as why:
        notice_address.unlocked(Locked())
    assert "fix: ./motley launch --vault ask   (ansible-playbook: --ask-vault-pass)" in str(why.value)


def test_a_launch_brings_the_address_and_another_takes_it_away(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = keep(inventory, "https://ntfy.example/secret", monkeypatch)
    nodes = [node("a", address="127.0.0.1", home=str(tmp_path / "a"))]
    plan = launch_plan({"run": "r", "model": "tiny", "dataset": "qa", "device": "cpu"}, run="r", nodes=nodes)
    ports = {"presence_port": 29400, "group_ports": [29410, 29489]}
    given = {"plan": plan.to_json(), "token": "5f", "ports": ports, "environment": {}}
    given["state_folder"] = str(tmp_path / "state")
    task = {"launch_files": given, "diff": True}
    play = [{"hosts": "cluster", "gather_facts": False, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    command = [Path(sys.executable).with_name("ansible-playbook"), "-vvv", "-i", found.path, tmp_path / "play.yml"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    file = tmp_path / "a" / paths.SECRET
    for address in ("https://ntfy.example/secret", ""):
        if not address:
            (found.path / "group_vars/cluster.yml").unlink()
        done = pace.does(*command, cwd=notice_address.ROOT)
        assert "example/secret" not in done.stdout + done.stderr
        assert secret_of(file) == Secret(token="5f", messages=address)
        if address:
            assert file.stat().st_mode & 0o777 == 0o600
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert [path for path in files if b"le/secret" in path.read_bytes()] == [file]
    assert launch_records.known(tmp_path / "state")["r"]["given"] == plan.given


def test_each_node_is_tried_by_itself(
    inventory: Inventory, server: Webhook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inventory.path.parent)
    with pytest.raises(BadInput, match="motley_notify is not set"):
        notice_address.test(inventory, vault="")
    found = keep(inventory, server.address, monkeypatch)
    assert notice_address.test(found, vault="") == 0 and "✓ a  sent\n" in capsys.readouterr().out
    assert [b"a can send" in body for _, _, body in server.got] == [True]
    server.answers = [404]
    assert notice_address.test(found, vault="") == 1
    said = capsys.readouterr().out
    assert "✗ a  it answered HTTP 404" in said and "secret" not in said
    monkeypatch.setattr(LocalNode, "command", Mock(side_effect=Silent("nobody answers at 127.0.0.1")))
    assert notice_address.test(found, vault="") == 1
