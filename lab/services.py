"""Small programs that run beside the hosts (package repository, delay), each in a cgroup by which it is ended."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab import cgroups
from lab.place import Place

JOIN = 'for c in $1; do echo $$ >"$c/cgroup.procs" || exit 1; done; shift; exec "$@"'


def start(
    place: Place, name: str, namespace: str, command: Sequence[str | Path], *, starts_hosts: bool = False
) -> None:
    """One that starts hosts sees the cgroups of this machine, which `ip netns exec` hides."""
    enter = ["nsenter", f"--net=/run/netns/{namespace}"] if starts_hosts else ["ip", "netns", "exec", namespace]
    groups = " ".join(str(folder) for folder in cgroups.create(_group(place, name)))
    with (place.root / f"{name}.log").open("a") as log:
        subprocess.Popen(
            ["bash", "-c", JOIN, "-", groups, *enter, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def stop(place: Place, name: str) -> None:
    cgroups.remove(_group(place, name))


def _group(place: Place, name: str) -> str:
    return f"{place.cgroup}/services/{name}"
