"""Where a machine answers, at sockets of this one that play it."""

import socket
import threading

import pytest

from console.infra.machines import node as ssh
from console.infra.machines.node import SshNode
from console.infra.node import Silent

GREETING = b"SSH-2.0-test\r\n"


def node(*addresses, port=22):
    return SshNode(name="gpu-1", home="~/ai-cluster", addresses=addresses, port=port, state="/nonexistent")


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
