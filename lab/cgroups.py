"""Cgroups of the lab, on pure v2 and on hybrid v1 alike: one group a host, for its quota, its freezing and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from lab.shell import LabError

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
"""Short, so that a share of a core is like a slower core: who has used up the kernel's usual 0.1 s waits for the rest
of it, and with it all who wait for him. Not shorter: the kernel takes no quota under 1 ms, 5 % of this."""


def hybrid() -> bool:
    return not (MOUNT / "cgroup.controllers").exists()


def unified() -> Path:
    """The v2 tree: membership, freezing and killing go by it."""
    return MOUNT / "unified" if hybrid() else MOUNT


def trees() -> list[Path]:
    return [MOUNT / "unified", MOUNT / "systemd", MOUNT / "cpu"] if hybrid() else [MOUNT]


def check() -> str | None:
    """Why cgroups cannot be used here, or nothing."""
    for tree in trees():
        if not (tree / "cgroup.procs").exists():
            return f"no cgroup tree at {tree}"
        if not os.access(tree / "cgroup.procs", os.W_OK):
            return f"{tree} is read-only (a container without --privileged?)"
    return None


def create(group: str) -> list[Path]:
    """Make the group in every tree and return its folders, for a process to join before it becomes the host."""
    for tree in trees():
        made = tree
        for part in Path(group).parts:
            if not hybrid():
                with contextlib.suppress(OSError):  # already on, or not offered here: quota() says so when asked
                    (made / "cgroup.subtree_control").write_text("+cpu")
            made = made / part
            made.mkdir(exist_ok=True)
    return [tree / group for tree in trees()]


def quota(group: str, percent: float | None) -> None:
    """Allow the group this share of one core, or all there is."""
    amount = None if percent is None else int(percent * PERIOD_US / 100)
    if hybrid():
        file = MOUNT / "cpu" / group / "cpu.cfs_quota_us"
        told = [(file, "-1"), (file.with_name("cpu.cfs_period_us"), str(PERIOD_US)), (file, str(amount or -1))]
    else:
        file = MOUNT / group / "cpu.max"
        told = [(file, f"{amount or 'max'} {PERIOD_US}")]
    try:
        for place, words in told:
            place.write_text(words)
    except OSError as error:
        raise LabError(f"no CPU quota here, the cpu cgroup controller is missing: {file}: {error.strerror}") from None


def quota_percent(group: str) -> float | None:
    if hybrid():
        folder = MOUNT / "cpu" / group
        amount, period = ((folder / f"cpu.cfs_{what}_us").read_text().strip() for what in ("quota", "period"))
    else:
        amount, period = (MOUNT / group / "cpu.max").read_text().split()
    return None if amount in {"-1", "max"} else int(amount) * 100 / int(period)


def freeze(group: str, frozen: bool) -> None:
    (unified() / group / "cgroup.freeze").write_text("1" if frozen else "0")


def frozen(group: str) -> bool:
    file = unified() / group / "cgroup.freeze"
    return file.exists() and file.read_text().strip() == "1"


def processes(group: str) -> list[int]:
    found: set[int] = set()
    for tree in trees():
        for folder, _, _ in os.walk(tree / group):  # a group may be gone before it is looked into
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
    return sorted(found - {0, os.getpid()})


def remove(group: str, *, patience_s: float = 60) -> None:
    """End every process of the group and take the group away."""
    deadline = time.monotonic() + patience_s
    if frozen(group):
        freeze(group, False)
    while alive := _kill_all(group):
        if time.monotonic() > deadline:
            raise LabError(f"processes {alive[:5]} of {group} do not end; `cat /proc/{alive[0]}/stack` may say why")
        time.sleep(0.02)
    for tree in trees():
        for folder, _, _ in os.walk(tree / group, topdown=False):
            _rmdir(Path(folder), group, deadline)
        for parent in (tree / group).relative_to(tree).parents[:-1]:
            with contextlib.suppress(OSError):  # another lab, another host: still in use
                (tree / parent).rmdir()


def _kill_all(group: str) -> list[int]:
    alive = processes(group)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return alive


def _rmdir(folder: Path, group: str, deadline: float) -> None:
    """A group that has just lost its last process stays busy for a moment; and a host whose start was broken off may
    enter it only now."""
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise LabError(f"cannot remove cgroup {folder}") from None
            _kill_all(group)
            time.sleep(0.02)
