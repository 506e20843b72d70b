"""Where a node can be called (SSH's own ports, other services), and from where it is called now."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypedDict

from .node_network import ask

ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
LISTENER = re.compile(r"LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+\s*(.*)")
PUBLISHED = "docker-proxy"
"""Calls from outside do not reach it: docker leads them into the container before that."""


class Service(TypedDict):
    port: int
    program: str


class Listening(TypedDict):
    ssh_ports: list[int]
    services: list[Service]
    caller: str


def look() -> Listening:
    """Looks at the node's ports, as root: others' programs are not named to anybody else."""
    listening = ask("ss", "-Hltnp")
    ssh_connection = connection()
    ssh = ssh_ports_of(
        ask("/usr/sbin/sshd", "-T"),
        ask("systemctl", "show", "-p", "Listen", "ssh.socket", "sshd.socket"),
        listening,
        ssh_connection,
    )
    return {"ssh_ports": ssh, "services": services_of(listening, ssh), "caller": address_in(ssh_connection)}


def ssh_ports_of(settings: str, sockets: str, listening: str, came_by: str) -> list[int]:
    """From sshd's own settings, systemd's sockets for it, what listens now, and the connection that asks."""
    ports = {int(port) for port in re.findall(r"(?m)^port (\d+)$", settings)}
    ports |= {int(port) for port in re.findall(r"(?m)^listenaddress \S+:(\d+)$", settings)}
    ports |= {int(port) for port in re.findall(r"(?m)^Listen=\S+:(\d+) \(Stream\)", sockets)}
    ports |= {port for _, port, program in listeners(listening) if program.startswith("sshd")}
    ports |= {int(word) for word in came_by.split()[3:4]}
    return sorted(ports) or [22]


def services_of(listening: str, ssh_ports: list[int]) -> list[Service]:
    """What else can be called from outside; the processes of a run of ours are no service."""
    programs = {
        port: program
        for address, port, program in listeners(listening)
        if not address.strip("[]").startswith(("127.", "::1")) and port not in ssh_ports and program != PUBLISHED
    }
    return [{"port": port, "program": program or "the kernel"} for port, program in sorted(programs.items())]


def listeners(listening: str) -> list[tuple[str, int, str]]:
    """Address, port and the program's name (empty: none has it open, as with NFS)."""
    sockets = []
    for line in listening.splitlines():
        if listener := LISTENER.match(line):
            program = re.search(r'\(\("([^"]*)",pid=(\d+)', listener[3])
            if not (program and of_a_run(program[2])):
                sockets.append((listener[1], int(listener[2]), program[1] if program else ""))
    return sockets


def of_a_run(pid: str) -> bool:
    return b"MOTLEY_HOME=" in environment(Path("/proc", pid))


def environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def connection() -> str:
    """SSH_CONNECTION of whoever runs this; sudo takes it away, and what started sudo still has it."""
    pid = os.getpid()
    while pid > 1:
        process = Path("/proc", str(pid))
        for entry in environment(process).split(b"\0"):
            if entry.startswith(b"SSH_CONNECTION="):
                return entry.partition(b"=")[2].decode(errors="replace")
        pid = parent_of(process)
    return ""


def parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def address_in(came_by: str) -> str:
    """The caller's, of IPv4 alone, as the firewall's friends are."""
    words = came_by.split()
    return words[0] if words and ADDRESS.fullmatch(words[0]) else ""


def shut_out(printed: str) -> str:
    """The caller, where the node's firewall does not let it in; `printed` is what ASK prints there."""
    rules, _, came_by = printed.rpartition("from ")
    friends, caller = set(ADDRESS.findall(rules)), address_in(came_by)
    return caller if friends and caller and caller not in friends else ""


FRIENDS, RULES = "/etc/motley/friends", "/etc/motley/firewall.nft"
ASK = f'cat {FRIENDS} {RULES} 2>/dev/null; echo "from $SSH_CONNECTION"'
"""What a login user may read of who is let in, and where it came from."""
