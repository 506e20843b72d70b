"""Who is where, decided by host keys alone."""

import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugins.module_utils.motley import hostkeys
from plugins.module_utils.motley.hostkeys import Contact, NodeAddresses, fingerprint, judge, pin, read_pins, settled
from tests.support import pace

KEY_A, KEY_B, KEY_C = (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 43}" for letter in "ABC")
WANTED, TODAY = "192.168.1.100", "192.168.1.23"
NODE = NodeAddresses("a", (WANTED, TODAY))


@pytest.mark.parametrize(
    ("answers", "pins", "state", "address", "twin"),
    [
        ({WANTED: KEY_C, TODAY: KEY_A}, {}, "new", TODAY, ""),
        ({TODAY: KEY_A}, {"a": KEY_A}, "known", TODAY, ""),
        ({WANTED: KEY_A}, {"a": KEY_A}, "known", WANTED, ""),
        ({WANTED: KEY_C, TODAY: KEY_A}, {"a": KEY_A}, "known", TODAY, ""),
        ({TODAY: KEY_C}, {"a": KEY_A}, "changed", TODAY, ""),
        ({WANTED: KEY_B}, {"a": KEY_A, "b": KEY_B}, "off", "", "b"),
        ({}, {"a": KEY_A}, "off", "", ""),
    ],
    ids=[
        "on first contact the present address comes first",
        "a pinned node is found where it is",
        "a pinned node is found where it shall be",
        "somebody else is where it shall be",
        "another key is noticed",
        "another node of ours is there",
        "nobody is there",
    ],
)
def test_a_node_is_known_by_its_key(
    answers: dict[str, str], pins: dict[str, str], state: str, address: str, twin: str
) -> None:
    keys = {(address, 22): key for address, key in answers.items()}
    [contact] = judge([NODE], keys, {name: (key, "2026-11-01") for name, key in pins.items()})
    assert (contact.state, contact.address, contact.twin) == (state, address, twin)
    assert contact.key == answers.get(address, "") and contact.pinned_on == ("2026-11-01" if pins else "")


@pytest.mark.parametrize(
    ("says", "found"), [(b"SSH-2.0-x\r\n", "greets"), (b"", "closed"), (b"Not allowed at this time\r\n", "closed")]
)
def test_a_server_that_holds_us_off_is_not_called_off(says: bytes, found: str) -> None:
    """As sshd's PerSourcePenalties does: it accepts and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(says)

        answered, port = pool.submit(answer), server.getsockname()[1]
        assert hostkeys.knock(["127.0.0.1"], port) == found
        answered.result()
    assert hostkeys.knock(["127.0.0.1"], port) == "refused"


@pytest.mark.parametrize(
    ("options", "config", "behind"),
    [
        ("", "", False),
        (
            "-o 'UserKnownHostsFile=\"/home/o'hara/.motley/known_hosts\"' -o HostKeyAlias=a",
            "Host *\n  User anna\n",
            False,
        ),
        ("-J anna@gate", "", True),
        ("-o HostKeyAlias=a -o 'ProxyCommand=ssh gate nc %h %p'", "", True),
        ("-oproxyjump=gate", "", True),
        ("", "Host 10.9.*\n  ProxyJump gate\n", True),
        ("", "Host 10.8.*\n  ProxyJump gate\n", False),
    ],
)
def test_a_machine_that_ssh_reaches_over_another_is_known(
    options: str, config: str, behind: bool, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(config)
    assert hostkeys.is_behind("10.9.0.5", options, ("-F", str(tmp_path / "config"))) == behind


def seen(
    places: list[NodeAddresses], answers: dict[str, str], monkeypatch: pytest.MonkeyPatch, known: Path
) -> list[Contact]:
    monkeypatch.setattr(hostkeys, "scan", lambda *_: {(address, 22): key for address, key in answers.items()})
    return hostkeys.look(places, known)


def test_of_two_lines_with_one_key_the_first_is_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On first contact, and ever after: the second is asked at its own address who it is."""
    places = [
        NodeAddresses("a", ("192.168.1.2",)),
        NodeAddresses("b", ("192.168.1.9", "192.168.1.3")),
        NodeAddresses("c", ("192.168.1.4",)),
    ]
    answers = {"192.168.1.2": KEY_A, "192.168.1.3": KEY_A, "192.168.1.4": KEY_C}
    for _ in range(2):
        first, second, other = seen(places, answers, monkeypatch, tmp_path / "known")
        assert first.state in ("new", "known") and first.address == "192.168.1.2" and other.state == first.state
        assert (second.state, second.twin, second.address) == ("double", "a", "192.168.1.3")
        pin([first, second, other], tmp_path / "known")
    assert list(read_pins(tmp_path / "known")) == ["a", "c"]


def test_a_node_in_the_place_of_another_is_no_second_line_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nowhere else: it is about to leave, or the other one is off and has lost its address to it."""
    pin([Contact(name="a", state="new", key=KEY_A)], tmp_path / "known")
    places = [NodeAddresses("a", ("192.168.1.2", "192.168.1.3")), NodeAddresses("b", ("192.168.1.3",))]
    _, second = seen(places, {"192.168.1.3": KEY_A}, monkeypatch, tmp_path / "known")
    assert (second.state, second.twin) == ("off", "a")
    pin([Contact(name="b", state="new", key=KEY_B)], tmp_path / "known")
    _, second = seen(places, {"192.168.1.2": KEY_A, "192.168.1.3": KEY_A}, monkeypatch, tmp_path / "known")
    assert (second.state, second.twin) == ("off", "a"), "b has a key of its own"


def test_two_nodes_that_swap_are_told_apart() -> None:
    pins = {"a": (KEY_A, ""), "b": (KEY_B, "")}
    places = [NodeAddresses("a", ("192.168.1.2", "192.168.1.1")), NodeAddresses("b", ("192.168.1.1", "192.168.1.2"))]
    before = judge(places, {("192.168.1.1", 22): KEY_A, ("192.168.1.2", 22): KEY_B}, pins)
    assert [contact.address for contact in before] == ["192.168.1.1", "192.168.1.2"]
    after = judge(places, {("192.168.1.1", 22): KEY_B, ("192.168.1.2", 22): KEY_A}, pins)
    assert [contact.address for contact in after] == ["192.168.1.2", "192.168.1.1"]


def test_pins_are_read_back_with_their_day(tmp_path: Path) -> None:
    file = tmp_path / "state" / "known_hosts"
    pin([Contact(name="a", state="new", key=KEY_A), Contact(name="b", state="off")], file)
    pins = read_pins(file)
    assert list(pins) == ["a"] and pins["a"][0] == KEY_A and pins["a"][1].startswith("20")
    assert file.stat().st_mode & 0o077 == 0


def test_fingerprints_look_like_those_of_ssh_keygen() -> None:
    assert fingerprint(KEY_A).startswith("SHA256:") and len(fingerprint(KEY_A)) == 50


def test_nobody_is_waited_for_once_all_are_where_they_shall_be() -> None:
    pins, here = {"a": (KEY_A, "")}, {(WANTED, 22): KEY_A}
    assert settled([NODE], here, pins)
    assert not settled([NODE], {(TODAY, 22): KEY_A}, pins), "it may still answer at the wanted address"
    assert not settled([NODE], {(WANTED, 22): KEY_C}, pins)
    assert not settled([NODE, NodeAddresses("b", ("192.168.1.101",))], here, pins)


def test_an_address_that_says_nothing_costs_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One door shows the pinned key at once, the other takes the call and is silent."""
    with socket.create_server(("127.0.0.2", 0)) as silent:
        answers = hostkeys.ask

        def ask(address: str, port: int, timeout_s: int, kinds: str) -> subprocess.Popen[str]:
            if address == "127.0.0.2":
                return answers(address, port, timeout_s, kinds)
            return subprocess.Popen(["echo", address, KEY_A], stdout=subprocess.PIPE, text=True)

        monkeypatch.setattr(hostkeys, "ask", ask)
        file = tmp_path / "known_hosts"
        pin([Contact(name="a", state="new", key=KEY_A)], file)
        start = pace.now()
        place = NodeAddresses("a", ("127.0.0.1", "127.0.0.2"), port=silent.getsockname()[1])
        assert hostkeys.look([place], file)[0].state == "known"
        assert pace.now() - start < 2


ECDSA, RSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNh", "ssh-rsa AAAAB3NzaC1y"


class Machine:
    """It has these host keys, and ssh-keyscan asks it for some kinds; `asked` has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *keys: str, answers: bool = True) -> None:
        self.keys, self.answers, self.asked = keys, answers, list[str]()
        monkeypatch.setattr(hostkeys, "ask", self._ask)

    def _ask(self, address: str, port: int, _: int, kinds: str = hostkeys.EVERY_KIND) -> subprocess.Popen[str]:
        self.asked.append(kinds)
        shown = [f"{address} {key}" for key in self.keys if hostkeys.ASKED_AS[key.split()[0]] in kinds.split(",")]
        printed = "\n".join([f"# {address}:{port} SSH-2.0-OpenSSH_9.2p1", *shown] if self.answers else ["nobody"])
        return subprocess.Popen(["echo", printed], stdout=subprocess.PIPE, text=True)


def test_of_machines_that_are_pinned_only_that_kind_of_key_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, place, machine = tmp_path / "known", NodeAddresses("a", (WANTED,)), Machine(monkeypatch, RSA, ECDSA, KEY_A)
    first = hostkeys.look([place], known)
    assert first[0].key == KEY_A and machine.asked == ["ed25519,ecdsa,rsa"]
    pin(first, known)
    assert hostkeys.look([place], known)[0].state == "known" and machine.asked[1:] == ["ed25519"]
    pin([Contact(name="b", state="new", key=RSA)], known)
    hostkeys.look([place], known)
    assert machine.asked[2:] == ["ed25519,rsa"], "another node may be in its place"
    hostkeys.look([place, NodeAddresses("c", (TODAY,))], known)
    assert machine.asked[3:] == ["ed25519,ecdsa,rsa"] * 2, "one of them is new"


def test_a_machine_without_a_key_of_the_pinned_kind_is_another_and_one_that_is_off_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, place = tmp_path / "known", NodeAddresses("a", (WANTED,))
    pin([Contact(name="a", state="new", key=KEY_A)], known)
    machine = Machine(monkeypatch, ECDSA)
    assert hostkeys.look([place], known)[0].state == "changed" and "ed25519,ecdsa,rsa" in machine.asked
    machine = Machine(monkeypatch)
    assert hostkeys.look([place], known)[0].state == "off" and machine.asked == ["ed25519", "ed25519,ecdsa,rsa"]
    machine = Machine(monkeypatch, answers=False)
    assert hostkeys.look([place], known)[0].state == "off" and machine.asked == ["ed25519"]


@pytest.mark.parametrize("name", ["of-this-test", "of-a-caf\xe9"])
def test_ssh_keyscan_is_given_the_kinds_and_tells_the_greeting(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"SSH-2.0-{name}\r\n".encode("latin-1"))

        greeted = pool.submit(greet)
        with hostkeys.ask("127.0.0.1", server.getsockname()[1], 2, "ed25519") as asked:
            assert hostkeys.GREETING + name.rstrip("\xe9") in asked.communicate()[0]
        greeted.result()
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.accept()  # a connection for each kind


def test_a_busy_machine_that_shows_another_kind_of_key_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pinned kind came too late: that is not what a reinstalled machine looks like."""
    known = tmp_path / "known_hosts"
    pin([Contact(name="a", state="new", tried=[], key=KEY_A)], known)
    shown = iter([ECDSA, KEY_A, ECDSA, ECDSA])
    monkeypatch.setattr(hostkeys, "scan", lambda *_: {(TODAY, 22): next(shown)})
    assert hostkeys.look([NODE], known)[0].state == "known"
    assert hostkeys.look([NODE], known)[0].state == "changed"  # and stays so where it shows no other


@pytest.mark.parametrize("left", [None, ""])
def test_the_public_part_of_this_controllers_key_is_made_again_where_it_is_lost(
    left: "str | None", tmp_path: Path
) -> None:
    """An empty line in its place would close the nodes to it."""
    private, public = tmp_path / "key", tmp_path / "key.pub"
    line = hostkeys.own_key(private)
    public.unlink() if left is None else public.write_text(left)
    assert hostkeys.own_key(private).split()[:2] == line.split()[:2]
    assert hostkeys.own_key(private) == public.read_text().strip()
    private.write_bytes(b"")
    another = hostkeys.own_key(private)
    assert another.split()[1] != line.split()[1] and another == public.read_text().strip() and private.stat().st_size


def test_bytes_of_another_encoding_among_the_pinned_keys_cost_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_bytes(b"# caf\xe9\n" + f"a {KEY_A} motley-pinned-2026-11-20\n".encode())
    assert read_pins(tmp_path / "known_hosts") == {"a": (KEY_A, "2026-11-20")}
