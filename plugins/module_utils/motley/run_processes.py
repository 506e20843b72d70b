# MIT License, see LICENSE
"""The processes of a run on this node, and the ports on which they listen. Standard library alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..train.layout import GROUP_PORTS, HEARTBEAT_PORT
from ..train.runlog.paths import PRELOAD, UNIT, WANTED
from .files import read
from .node_replies import ProcessFacts
from .run_files import named_run

PORTS = range(HEARTBEAT_PORT, GROUP_PORTS[1] + 1)


def processes(home: Path) -> dict[int, ProcessFacts]:
    """Every process of a run below this home: pid → its part (agent, warm or worker), and what started it."""
    facts_of: dict[int, ProcessFacts] = {}
    loading = is_loading(home)
    wanted = b"MOTLEY_HOME=" + os.fsencode(os.path.realpath(home))
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):  # it ended, or is another user's
            environment = (folder / "environ").read_bytes().split(b"\0")
            if wanted not in environment or pid == os.getpid():
                continue
            words = (folder / "cmdline").read_bytes().split(b"\0")
            # Bytes: the kernel may have cut the name before the bracket within a letter.
            if (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                continue
            group = (folder / "cgroup").read_text()
            how = "unit" if UNIT in group else "detached" if b"MOTLEY_STARTED=launch" in environment else "by hand"
            if loading and how == "unit":
                continue
            facts_of[pid] = {"part": part_of(words), "how": how}
    return facts_of


def agents_of(here: dict[int, ProcessFacts]) -> list[int]:
    return [pid for pid, facts in here.items() if facts["part"] == "agent"]


def end(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def run_on(home: Path) -> str:
    """The name of the run that is running here, or is between two starts of its unit; empty where none is."""
    return (named_run(home) or "a run without a name") if processes(home) or (home / WANTED).exists() else ""


def is_loading(home: Path) -> bool:
    """Whether the unit only loads libraries for a launch that is being prepared: no run yet."""
    return (home / PRELOAD).exists() and not (home / WANTED).exists()


def part_of(words: list[bytes]) -> str:
    """torchrun's own process is a worker of the one that started it, which stands where a run's agent does."""
    command = b"".join(words[words.index(b"train") + 1 :][:1]) if b"train" in words else b""
    return {b"agent": "agent", b"torchrun": "agent", b"warm": "warm"}.get(command, "worker")


def listening(home: Path) -> list[int]:
    """Ports of runs on which a process of this very node listens."""
    pids = {str(pid) for pid in processes(home)}
    sockets = set()
    for pid in pids:
        for link in Path("/proc", pid, "fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for kind in ("tcp", "tcp6"):
        for line in read(Path("/proc/net", kind)).splitlines()[1:]:
            parts = line.split()
            port = int(parts[1].rsplit(":", 1)[1], 16)
            if parts[3] == "0A" and port in PORTS and parts[9] in sockets:
                ports.add(port)
    return sorted(ports)
