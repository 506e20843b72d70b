"""./motley inventory as a person uses it: questions that are asked again, nothing lost, one machine more or less."""

from __future__ import annotations

import builtins
import ipaddress
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console import new_inventory
from console.__main__ import run_verb
from console.inventory.check import check
from console.new_inventory import Machine, address_of, describe, parse_hosts, parse_machine, reached
from train.errors import BadInput

Answers = Callable[..., list[str]]
MESH = """\
default via 192.168.68.1 dev wlan0 proto dhcp src 192.168.69.23 metric 600
172.17.0.0/16 dev docker0 proto kernel scope link src 172.17.0.1 linkdown
192.168.68.0/22 dev wlan0 proto kernel scope link src 192.168.69.23 metric 600
"""
OWN = """\
# mine: anna's
cluster:
  vars:
    ansible_user: anna  # everywhere
    motley_subnet: 192.168.1.0/24
    motley_gateway: 192.168.1.1
  hosts:
    desk:  # the loud one
      motley_address: 192.168.1.23
      motley_gpu: RTX 3090
    # under the stairs
    attic:
      motley_address: 192.168.1.31

      # sleeps
      motley_mac: "3c:7c:3f:00:00:01"

# the end
"""


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever network this computer is in."""
    monkeypatch.setattr(new_inventory, "routes_here", lambda: "")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Gives these answers to the questions, then Ctrl-D; in the list: what was asked."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(new_inventory, "reached", lambda machine: f"{machine.address} was tried")

    def given(*words: str) -> list[str]:
        left, asked = iter(words), list[str]()

        def answer(question: str) -> str:
            asked.append(question)
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(builtins, "input", answer)
        return asked

    return given


@pytest.fixture
def own(tmp_path: Path) -> Path:
    assert describe(str(tmp_path / "home"), "anna@192.168.1.99") == 0
    (tmp_path / "home/hosts.yml").write_text(OWN)
    return tmp_path / "home"


def nodes(folder: Path) -> list[str]:
    found = check(folder)
    assert found.findings == []
    return [*found.nodes]


def test_a_wrong_answer_alone_is_asked_again(
    tmp_path: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answers(
        "", "", "!!!", "8.8.8.8", "192.168.1.23 172.17.0.1 fd00::1", "10.0.0.9", "bert@192.168.1.31", "", ""
    )
    assert describe(str(tmp_path), "") == 0
    said = capsys.readouterr().out
    assert "type an address, such as" in said and "'!!!' is not user@address" in said
    assert "8.8.8.8 is a public address" in said
    assert "10.0.0.9 is outside 192.168.1.0/24" in said and "192.168.1.23 was tried" in said
    assert nodes(tmp_path) == ["gpu-master", "gpu-worker-1"] and len(asked) == 9


def test_end_of_input_is_a_stop_that_changes_nothing(
    own: Path, answers: Answers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.playbook.interrupt.listen_to_sigterm", lambda: None)
    monkeypatch.setenv("MOTLEY_TYPED", "")
    answers("n", "anna", "192.168.1.40")
    assert run_verb("inventory", ["--inventory", str(own)]) == 130
    assert "stopped; nothing was changed" in capsys.readouterr().err
    assert (own / "hosts.yml").read_text() == OWN


@pytest.mark.parametrize("answer", ["", "q"])
def test_a_file_that_is_there_stays_unless_it_is_said_otherwise(own: Path, answers: Answers, answer: str) -> None:
    asked = answers(answer)
    assert describe(str(own), "") == 0
    assert len(asked) == 1 and "already describes 2 machines" in asked[0]
    assert (own / "hosts.yml").read_text() == OWN


def test_what_hosts_names_is_an_inventory_without_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert describe(str(tmp_path), "anna@192.168.7.23, bert@192.168.7.31:2222") == 0
    assert capsys.readouterr().out.endswith(f"; next: ./motley bootstrap --inventory {tmp_path}\n")
    assert nodes(tmp_path) == ["gpu-master", "gpu-worker-1"]
    head, worker = check(tmp_path).nodes.values()
    assert (worker["ansible_user"], worker["ansible_port"]) == ("bert", 2222)
    assert "ansible_ssh_common_args" in head and "motley_dns" not in head, "a node keeps its own, such as a Pi-hole"


def test_no_file_is_ever_lost(own: Path) -> None:
    for number in range(3):
        assert describe(str(own), f"anna@192.168.1.{50 + number}") == 0
    kept = [(own / f"hosts.yml.{number}.bak").read_text() for number in (1, 2, 3)]
    assert kept[0] == OWN and "192.168.1.51" in kept[2]


def test_a_machine_is_added_by_question(own: Path, answers: Answers) -> None:
    answers("a", "192.168.1.23", "192.168.1.60", "")
    assert describe(str(own), "") == 0
    assert nodes(own) == ["desk", "attic", "gpu-worker-1"]


def test_add_keeps_what_a_person_wrote(own: Path, answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    answers()
    assert describe(str(own), "", add="bert@192.168.1.60") == 0
    text = (own / "hosts.yml").read_text()
    more = "    gpu-worker-1:\n      motley_address: 192.168.1.60\n      ansible_user: bert\n"
    assert more in text and text.replace(more, "") == OWN
    said = capsys.readouterr().out
    assert f"next: ./motley bootstrap --inventory {own} " in said and "192.168.1.60 was tried" in said
    for wrong in ("anna@192.168.1.23", "anna@192.168.1.70 bert@192.168.1.70", "anna@192.168.2.9", "anna@8.8.8.8"):
        with pytest.raises(BadInput):
            describe(str(own), "", add=wrong)
    assert (own / "hosts.yml").read_text() == text


def test_remove_says_undo_first_and_keeps_the_rest(
    own: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    answers("n")
    assert describe(str(own), "", remove="attic") == 0 and (own / "hosts.yml").read_text() == OWN
    undo = f"./motley undo --phase all --nodes attic --inventory {own}"
    assert undo in capsys.readouterr().out
    answers("y")
    assert describe(str(own), "", remove="attic") == 0
    assert f"./motley bootstrap --inventory {own} " in capsys.readouterr().out
    text = (own / "hosts.yml").read_text()
    assert nodes(own) == ["desk"] and "# the loud one" in text and "# the end" in text and "sleeps" not in text
    assert (own / "hosts.yml.1.bak").read_text() == OWN
    for name, why in (("desk", "only machine"), ("dsk", "did you mean 'desk'")):
        with pytest.raises(BadInput, match=why):
            describe(str(own), "", remove=name)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("{cluster: {hosts: {a: {}}}}", {"add": "anna@192.168.1.60"}),
        (OWN.replace("  hosts:", "  hosts: &all"), {"add": "anna@192.168.1.60"}),
        (OWN.replace("    attic:", "    ? attic\n    :", 1), {"remove": "attic"}),
    ],
    ids=["in braces", "with an anchor", "a line that is not found"],
)
def test_a_file_of_another_form_is_left_to_its_owner(own: Path, text: str, change: dict[str, str]) -> None:
    (own / "hosts.yml").write_text(text)
    with pytest.raises(BadInput, match="by hand"):
        describe(str(own), "", **change)
    assert (own / "hosts.yml").read_text() == text


def test_a_name_is_resolved_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"desktop.local": "192.168.1.23", "me": "127.0.1.1"}

    def resolved(name: str, *_: object) -> list[tuple[object, ...]]:
        if name not in known:
            raise socket.gaierror
        return [(0, 0, 0, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert parse_machine("anna@desktop.local") == Machine("anna", "192.168.1.23", name="desktop")
    for name, why in (("banana", "nobody here knows"), ("me", "each machine itself"), ("1.2.3", "is not an address")):
        with pytest.raises(ValueError, match=why):
            address_of(name)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "type at least one machine"),
        ("192.168.1.3", "is not user@address"),
        ("anna@", "is not user@address"),
        ("anna@192.168.1.999", "is not an address"),
        ("anna@192.168.1.23:70000", "a port is a number from 1 to 65535"),
        ("anna@192.168.1.23 bert@192.168.1.23", "already in the list"),
    ],
)
def test_a_word_of_hosts_that_is_wrong_is_named(words: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_hosts(words)


def test_a_list_of_addresses_gives_the_one_at_home() -> None:
    assert parse_machine("fd00::1 172.17.0.1 10.0.0.5", "a").address == "10.0.0.5"
    assert parse_machine("172.17.0.1 fd00::1", "a").address == "172.17.0.1"
    assert parse_machine("10.8.0.6 192.168.122.1 192.168.1.23", "a").address == "192.168.1.23", "not a VPN's"
    for words, why in (("fd00::1 8.8.8.8", "none of fd00::1 8.8.8.8 is"), ("desk attic", "one machine at a time")):
        with pytest.raises(ValueError, match=why):
            parse_machine(words, "a")
    assert address_of("172.31.0.1") == ipaddress.IPv4Address("172.31.0.1")


def test_whether_ssh_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reached(Machine("a", "127.0.0.1", port)) == f"127.0.0.1 answers on port {port}"
    assert "does not answer" in reached(Machine("a", "127.0.0.1", port))


@pytest.mark.parametrize(
    ("route", "gateway"),
    [
        ("default via 192.168.1.254 dev enp1s0 proto dhcp", "192.168.1.254"),
        ("default via 10.0.0.1 dev enp1s0", "192.168.1.1"),
        ("default via inet6 fe80::1 dev wwan0", "192.168.1.1"),
    ],
)
def test_the_gateway_is_this_computers_in_that_network(
    route: str, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_inventory, "routes_here", lambda: f"{route}\n")
    assert new_inventory.gateway_here(ipaddress.IPv4Network("192.168.1.0/24")) == gateway


def test_a_network_is_as_large_as_this_computer_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_inventory, "routes_here", lambda: MESH)
    text = new_inventory.render(parse_hosts("a@192.168.69.23 a@192.168.70.4"))
    assert "motley_subnet: 192.168.68.0/22" in text and "motley_gateway: 192.168.68.1" in text
    with pytest.raises(ValueError, match=r"outside 192\.168\.68\.0/22"):
        parse_hosts("a@192.168.69.23 a@192.168.72.4")
