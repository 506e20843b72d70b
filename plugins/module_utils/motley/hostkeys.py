"""Host keys pinned by a machine's name: who answers at an address, and is it the machine we mean?

Runs on the controller. A key is pinned once, under the node's name and with the day, and decides ever after; an
address alone decides nothing, so a node can change its address, or swap it with another, and is still itself.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..train.files import write_atomic

KNOCK_S = 1.5
SLOWER = 4  # times as long, for a machine that showed only a part in time
PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
ASKED_AS = dict(zip(PREFERRED, ("ed25519", "ecdsa", "rsa")))  # noqa: B905  Python 3.9 has no strict=
EVERY_KIND = ",".join(ASKED_AS.values())
GREETING = "SSH-2.0-"
MARK = "motley-pinned-"
OVER_ANOTHER = re.compile(r"""(?:^|\s)["']?(?:-J|-o\s*["']?proxy(?:jump|command)\b)""", re.IGNORECASE)


@dataclass(frozen=True)
class NodeAddresses:
    """The addresses and the port where a node may answer."""

    name: str
    addresses: tuple[str, ...]  # the wanted one first
    port: int = 22
    options: str = ""  # of ssh, that the inventory has for it


@dataclass
class Contact:
    """What came of looking for a node."""

    name: str
    state: str  # known, new, changed, off, double
    address: str = ""
    key: str = ""  # "TYPE BASE64" as found
    fingerprint: str = ""
    pinned_on: str = ""
    source: str = ""  # the controller's own address as the node sees it
    twin: str = ""
    twin_at: str = ""  # where the twin's key was seen
    tried: list[str] = field(default_factory=list)
    knock: str = ""  # of one that is off: nobody, behind, refused, silent, closed, greets


def fingerprint(key: str) -> str:
    """What `ssh-keygen -lf` prints for a "TYPE BASE64" key."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def read_pins(known_hosts: Path) -> dict[str, tuple[str, str]]:
    """Name -> (key, day it was pinned)."""
    pins: dict[str, tuple[str, str]] = {}
    if known_hosts.exists():
        for line in known_hosts.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) >= 3 and not line.startswith("#"):
                day = words[3].removeprefix(MARK) if len(words) > 3 else ""
                pins[words[0]] = (f"{words[1]} {words[2]}", day)
    return pins


def write_pins(known_hosts: Path, pins: dict[str, tuple[str, str]]) -> None:
    known_hosts.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = "".join(f"{name} {key} {MARK}{day}\n" for name, (key, day) in pins.items())
    write_atomic(known_hosts, text.encode(), mode=0o600)


def ask(address: str, port: int, timeout_s: int, kinds: str = EVERY_KIND) -> subprocess.Popen[str]:
    """It prints keys and, as a comment, the greeting of whoever answers."""
    command = ["ssh-keyscan", "-T", str(timeout_s), "-p", str(port), "-t", kinds, address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def kinds_to_ask(places: list[NodeAddresses], pins: dict[str, tuple[str, str]]) -> str:
    """The pinned ones, where nobody is new: each kind costs a connection and a key exchange of its own."""
    pinned = {key.split()[0] for key, _ in pins.values()}
    if not all(place.name in pins for place in places) or not pinned <= ASKED_AS.keys():
        return EVERY_KIND
    return ",".join(name for kind, name in ASKED_AS.items() if kind in pinned)


def best_key(printed: str) -> str:
    """The most preferred of the host keys that answered; empty when nobody did."""
    keys = {}
    for line in printed.splitlines():
        words = line.split()
        if len(words) >= 3 and not line.startswith("#"):
            keys[words[1]] = f"{words[1]} {words[2]}"
    return next((keys[kind] for kind in PREFERRED if kind in keys), "")


def source_address(towards: str) -> str:
    """Which of our addresses a packet to there carries; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def judge(
    places: list[NodeAddresses], answers: dict[tuple[str, int], str], pins: dict[str, tuple[str, str]]
) -> list[Contact]:
    """Judges which node is where. Pure: `answers` holds the key (or nothing) that each (address, port) showed."""
    return [_judge_one(place, answers, pins) for place in places]


def _judge_one(place: NodeAddresses, answers: dict[tuple[str, int], str], pins: dict[str, tuple[str, str]]) -> Contact:
    contact = Contact(name=place.name, state="off", tried=list(place.addresses))
    owners = {key: name for name, (key, _) in pins.items()}
    pinned, contact.pinned_on = pins.get(place.name, ("", ""))
    # On first contact the address where it should answer today comes first: the other may be somebody else's.
    order = place.addresses if pinned else tuple(reversed(place.addresses))
    for address in order:
        key = answers.get((address, place.port), "")
        if not key:
            continue
        owner = owners.get(key)
        if owner == place.name:
            state = "known"
        elif owner:
            contact.twin, contact.twin_at = owner, address  # about to move away, listed twice, or a copied disk
            continue
        else:
            state = "changed" if pinned else "new"
        if contact.state == "off" or state == "known":
            contact.state, contact.address, contact.key = state, address, key
            contact.fingerprint = fingerprint(key)
        if state in ("known", "new"):
            break
    return contact


def look(places: list[NodeAddresses], known_hosts: Path, timeout_s: int = 3) -> list[Contact]:
    """Ask all addresses at the same time and judge the answers."""
    pins = read_pins(known_hosts)
    contacts = judge(places, scan(places, pins, timeout_s), pins)
    if slow := [place for place, contact in zip(places, contacts) if another_kind(contact, pins)]:  # noqa: B905
        again = {contact.name: contact for contact in judge(slow, scan(slow, pins, timeout_s * SLOWER), pins)}
        contacts = [again.get(contact.name, contact) for contact in contacts]
    _mark_doubles(contacts)
    for contact in contacts:
        contact.source = source_address(contact.address) if contact.address else ""
    return contacts


def another_kind(contact: Contact, pins: dict[str, tuple[str, str]]) -> bool:
    """A busy machine shows one key in time and not yet the pinned kind: no proof of a change, so it is asked again."""
    return contact.state == "changed" and contact.key.split()[0] != pins[contact.name][0].split()[0]


def scan(places: list[NodeAddresses], pins: dict[str, tuple[str, str]], timeout_s: int) -> dict[tuple[str, int], str]:
    """The key that each address shows, or nothing; not waited for longer than the answers can change anything."""
    targets = sorted({(address, place.port) for place in places for address in place.addresses})
    kinds = dict.fromkeys(targets, kinds_to_ask(places, pins))
    asked = {target: ask(*target, timeout_s, kinds[target]) for target in targets}
    answers: dict[tuple[str, int], str] = {}
    end = time.monotonic() + timeout_s * 4
    try:
        while len(answers) < len(asked) and not settled(places, answers, pins) and time.monotonic() < end:
            for target in [one for one in asked if one not in answers and asked[one].poll() is not None]:
                printed = asked[target].communicate()[0]
                if kinds[target] != EVERY_KIND and GREETING in printed and not best_key(printed):
                    kinds[target] = EVERY_KIND  # it answers, and has no key of a pinned kind: another machine
                    asked[target] = ask(*target, timeout_s)
                else:
                    answers[target] = best_key(printed)
            time.sleep(0.02)
    finally:
        for target, process in asked.items():
            if target not in answers:
                process.kill()
                process.communicate()
    return answers


def settled(places: list[NodeAddresses], answers: dict[tuple[str, int], str], pins: dict[str, tuple[str, str]]) -> bool:
    """Every node shows its pinned key where it is to be: whoever answers elsewhere is not it."""
    return all(
        contact.state == "known" and contact.address == place.addresses[0]
        for contact, place in zip(judge(places, answers, pins), places)  # noqa: B905  Python 3.9 has no strict=
    )


def _mark_doubles(contacts: list[Contact]) -> None:
    """Marks doubles: where two addresses show one key, the pinned or first listed is it, the other is a double.

    Whether that is the same machine or a copy of its disk, only the machine itself knows.
    """
    first: dict[str, Contact] = {}
    for contact in contacts:
        if contact.state in ("known", "new"):
            first.setdefault(contact.key, contact)
    named = {contact.name: contact for contact in contacts}
    for contact in contacts:
        twin = first.get(contact.key)
        if contact.state == "new" and twin is not contact and twin:
            contact.state, contact.twin = "double", twin.name
        answers = named.get(contact.twin) if contact.state == "off" and not contact.pinned_on else None
        if answers and answers.address not in ("", contact.twin_at):
            contact.state, contact.address, contact.key = "double", contact.twin_at, answers.key
            contact.fingerprint = answers.fingerprint


def knock(addresses: list[str], port: int) -> str:
    """What an SSH client would find: nobody, a refusal, a connection without a word or closed at once, a greeting."""
    worst = "nobody"
    for address in addresses:
        try:
            return "greets" if greets(address, port, KNOCK_S) else "closed"
        except ConnectionRefusedError:
            worst = "refused"
        except ConnectionResetError:
            return "closed"
        except socket.timeout as late:  # noqa: UP041  Python 3.9 has two
            if "timed out" in str(late) and worst == "nobody" and connected(address, port):
                return "silent"
        except OSError:
            continue
    return worst


def is_behind(address: str, options: str = "", config: tuple[str, ...] = ()) -> bool:
    """Whether ssh goes there over another machine, by its options in the inventory or by the person's own config."""
    told = subprocess.run(["ssh", *config, "-G", address], capture_output=True, text=True, check=False).stdout
    return bool(OVER_ANOTHER.search(options) or re.search(r"(?m)^proxy(jump|command) (?!none$)", told))


def greets(address: str, port: int, timeout_s: float) -> bool:
    """Whether it says that it is an SSH server: the kernel of a frozen machine still accepts. OSError: nobody is there,
    or says anything in time."""
    with socket.create_connection((address, port), timeout_s) as line:
        return line.recv(4).startswith(b"SSH-")


def connected(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), KNOCK_S):
            return True
    except OSError:
        return False


def wait_for(place: NodeAddresses, known_hosts: Path, prefer_s: float, timeout_s: float) -> Contact:
    """Look until the pinned node answers at its first address; after `prefer_s` any of its addresses will do."""
    start = time.monotonic()
    while True:
        contact = look([place], known_hosts, timeout_s=2)[0]
        elapsed = time.monotonic() - start
        at_first = contact.state == "known" and contact.address == place.addresses[0]
        if at_first or (contact.state == "known" and elapsed >= prefer_s) or elapsed >= timeout_s:
            return contact
        time.sleep(0.5)


def pin(contacts: list[Contact], known_hosts: Path) -> None:
    """Remember the new ones, with today's date."""
    pins = read_pins(known_hosts)
    today = time.strftime("%Y-%m-%d")
    pins.update({contact.name: (contact.key, today) for contact in contacts if contact.state == "new"})
    write_pins(known_hosts, pins)


def forget(names: list[str], known_hosts: Path) -> None:
    pins = read_pins(known_hosts)
    write_pins(known_hosts, {name: pinned for name, pinned in pins.items() if name not in names})


def own_key(private: Path) -> str:
    """The controller's own key for this cluster, made on first use; returns the public line."""
    if not private.exists() or not private.stat().st_size:  # a power cut leaves an empty one
        private.unlink(missing_ok=True)
        private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        comment = f"motley-controller@{socket.gethostname()}"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", os.fspath(private)]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    public = private.with_name(f"{private.name}.pub")
    if not public.exists() or not public.read_text().strip():
        made = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", os.fspath(private)], check=True, capture_output=True, text=True
        )
        write_atomic(public, made.stdout.encode())
    return public.read_text().strip()
