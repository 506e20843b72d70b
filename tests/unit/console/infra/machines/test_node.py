"""How one gets to a machine, and where it answers, at sockets of this one that play it."""

import json
import socket
import threading
from pathlib import Path

import pytest
import yaml

from console.infra.machines import node as ssh
from console.infra.machines.node import SshNode
from console.infra.node import Silent, from_inventory, ssh_options
from console.inventory.check import check
from tests.support import ROOT

GREETING = b"SSH-2.0-test\r\n"


def node(*addresses, port=22):
    return SshNode(name="gpu-1", home="~/ai-cluster", addresses=addresses, port=port, options=())


def answering_late(monkeypatch, answers):
    """Each address answers once its event is set, and None never does."""
    over = threading.Event()

    def knock(address, _):
        event = answers[address]
        return (event or over).wait(60) and event is not None

    monkeypatch.setattr(ssh, "_knock", knock)
    return over


def test_who_answers_at_the_wanted_address_is_not_kept_waiting_for_the_other(monkeypatch):
    """After bootstrap nobody is at the old one any more, and it took over a second to find that out, each time."""
    at_once = threading.Event()
    at_once.set()
    over = answering_late(monkeypatch, {"wanted": at_once, "old": None})
    found = []
    asking = threading.Thread(target=lambda: found.append(node("wanted", "old").answering()))
    asking.start()
    asking.join(20)
    assert found == ["wanted"] and not over.is_set()
    over.set()


def test_the_wanted_address_comes_first_however_late_it_answers(monkeypatch):
    wanted, old = threading.Event(), threading.Event()
    old.set()
    answering_late(monkeypatch, {"wanted": wanted, "old": old})
    threading.Timer(0.2, wanted.set).start()
    assert node("wanted", "old").answering() == "wanted"


def test_both_are_asked_at_once(monkeypatch):
    both = threading.Barrier(2)

    def knock(address, _):
        both.wait(20)
        return address == "old"

    monkeypatch.setattr(ssh, "_knock", knock)
    assert node("wanted", "old").answering() == "old"


def test_what_breaks_there_is_told():
    with pytest.raises(UnicodeError):  # what Python makes of a name with an empty part
        node("gpu..1").answering()


def test_a_server_must_say_who_it_is():
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.2", 0)) as mute:
        port = there.getsockname()[1]

        def greet():
            connection, _ = there.accept()
            connection.sendall(GREETING)
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        assert node("127.0.0.1", port=port).answering() == "127.0.0.1"
        with pytest.raises(Silent, match=r"nobody answers at 127\.0\.0\.2"):
            node("127.0.0.2", port=mute.getsockname()[1]).answering()


def written(folder: Path, inventory: str, **more: object) -> Path:
    """An inventory of this project with one machine."""
    (folder / "group_vars").symlink_to(ROOT / "inventory" / inventory / "group_vars")
    host = {"ansible_user": "anna", "motley_address": "192.168.1.5", "motley_state": str(folder / "my state")} | more
    (folder / "hosts.yml").write_text(json.dumps({"cluster": {"hosts": {"gpu-1": host}}}))
    return folder


def described(folder: Path, inventory: str, **more: object) -> SshNode:
    [node] = from_inventory(check(written(folder, inventory, **more)))
    return node


@pytest.mark.parametrize("inventory", ["homelab", "elsewhere", "rented"])
def test_a_direct_question_goes_by_motleys_key_and_the_pinned_host_key(inventory, tmp_path):
    words = described(tmp_path, inventory, ansible_host="192.168.1.5", ansible_port=2222).ssh("192.168.1.5")
    assert "IdentitiesOnly=yes" in words and "StrictHostKeyChecking=yes" in words
    own = [f'UserKnownHostsFile="{tmp_path}/my state/known_hosts"', "-o", "HostKeyAlias=gpu-1"]
    own += ["-i", f"{tmp_path}/my state/controller_ed25519", "-p", "2222", "anna@192.168.1.5"]
    assert words[-len(own) :] == own


@pytest.mark.parametrize("option", ["-J gate", "-o ProxyJump=gate", "-oProxyCommand='ssh -W %h:%p gate'"])
def test_behind_another_machine_a_direct_question_goes_the_way_that_ansible_goes(option, tmp_path):
    way = {"ansible_ssh_extra_args": option, "ansible_ssh_private_key_file": "~/.ssh/gate"}
    found = described(tmp_path, "elsewhere", ansible_host="10.0.0.5", **way)
    words = found.command(["true"])
    assert words[-4:-1] == ["-i", "~/.ssh/gate", "anna@10.0.0.5"]
    assert "HostKeyAlias=gpu-1" in words and "gate" in words[-5]


def test_options_of_ssh_that_are_no_words_are_a_finding(tmp_path):
    way = {"ansible_ssh_extra_args": "-o 'ProxyJump=gate"}
    [finding] = check(written(tmp_path, "elsewhere", ansible_host="10.0.0.5", **way)).findings
    assert "ansible_ssh_extra_args" in finding.what


def test_a_folder_may_have_any_name():
    """As a home folder has it, or a checkout; Motley's own inventory quotes for spaces alone."""
    values = yaml.safe_load((ROOT / "inventory/homelab/group_vars/cluster.yml").read_text())
    state = "/home/o'neil/my lab"
    assert ssh_options("gpu-1", values, state) == [
        "-o", f'UserKnownHostsFile="{state}/known_hosts"', "-o", "HostKeyAlias=gpu-1",
        "-i", f"{state}/controller_ed25519",
    ]  # fmt: skip
