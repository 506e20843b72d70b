"""A bootstrap of machines that are bootstrapped already, passing over what is as it was left, and every phase in turns.

    make bench PARTS=bootstrap

Three hosts of the lab with simulated cards. `bare` is without drivers, environment and all-reduce, `whole` with them;
`settings` is every phase with our settings of Ansible, in turns with Ansible's own (which find our roles and plugins).
"""

from __future__ import annotations

import configparser
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab import base
from lab import lab as labs
from lab.place import Place
from lab.profile import PASSWORD
from tests.bench.page import Figures, bench, row, spread
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, start

NAME = "bootstrap"
OF_THE_PROJECT = ("roles_path", "library", "module_utils", "filter_plugins", "lookup_plugins", "action_plugins")
WHOLE: dict[str, Any] = {
    "motley_gpu_driver_manage": True,
    "motley_python_env_manage": True,
    "motley_python_env_sets": ["node-cpu"],
}
BARE: dict[str, Any] = {"motley_proof_collective": False}
TITLES = {"bare": "without drivers and environment", "whole": "with drivers, environment and all-reduce"}


@dataclass
class Bootstrapped:
    person: Person
    fresh_s: float


@contextlib.contextmanager
def bootstrapped_trio() -> Iterator[Bootstrapped]:
    place = Place(name=f"bench{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            person = Person(start(place.name, "trio", base.default_suite(), Path(folder)), Path(folder))
            person.writes(**WHOLE)
            since = time.monotonic()
            person.bootstraps()
            yield Bootstrapped(person, time.monotonic() - since)
        finally:
            labs.down(place)


def again(there: Bootstrapped, **wanted: Any) -> Figures:
    """Both ways, one after the other."""
    found: Figures = {"fresh": there.fresh_s}
    for way, look in (("as it was left", True), ("every phase", False)):
        there.person.writes(**wanted, motley_as_left_look=look)
        before, since = cpu_seconds(), time.monotonic()
        said = there.person.bootstraps()
        found[way] = time.monotonic() - since
        found[f"{way}, CPU"] = cpu_seconds() - before
        phases = said.receipt["nodes"]["gpu-master"]["phases"]
        found[f"{way}, phases"] = {name: phase["seconds"] for name, phase in phases.items() if not phase["as_left"]}
        if any(said.changed().values()) or (look and set(found[f"{way}, phases"]) & {"ssh_trust", "run"}):
            raise SystemExit(f"it did more than look:\n{said.out}")
    return found


def settings(there: Bootstrapped) -> Figures:
    there.person.writes(**BARE, motley_as_left_look=False)
    files = {"ours": REPOSITORY / "ansible.cfg", "Ansible's defaults": defaults(there.person.folder)}
    return {name: seconds_of_playbook(there.person, file) for name, file in files.items()}


def cpu_seconds() -> float:
    """Of all programs that were waited for: other work on the machine lengthens runs, and leaves this as it is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of_playbook(person: Person, file: Path) -> float:
    password = person.folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    env = {"ANSIBLE_CONFIG": str(file), "ANSIBLE_BECOME_PASSWORD_FILE": str(password)}
    command: list[str | Path] = [Path(sys.executable).parent / "ansible-playbook", "-i", person.inventory]
    command.append("playbooks/bootstrap.yml")
    since = time.monotonic()
    done = person.cluster.controller(*command, env=env)
    took = time.monotonic() - since
    if done.returncode or "changed=0" not in done.stdout:
        raise SystemExit(f"it did not run through: {done.stdout[-3000:]}{done.stderr}")
    return took


def defaults(folder: Path) -> Path:
    """Where our roles and plugins are, and nothing else."""
    own, bare = configparser.ConfigParser(interpolation=None), configparser.ConfigParser(interpolation=None)
    own.read(REPOSITORY / "ansible.cfg")
    bare["defaults"] = {name: str(REPOSITORY / own["defaults"][name]) for name in OF_THE_PROJECT}
    file = folder / "defaults.cfg"
    with file.open("w") as stream:
        bare.write(stream)
    return file


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = ["| a bootstrap of three machines | seconds | aim |", "| --- | --- | --- |"]
    for part in (part for part in TITLES if part in found):
        lines += rows_of(TITLES[part], found[part])
    if whole := found.get("whole"):
        lines.append(row(f"fresh, {TITLES['whole']}", list({one["fresh"]: 0 for one in whole}), "{:.1f}"))
    if each := found.get("settings"):
        ratios = [one["Ansible's defaults"] / one["ours"] for one in each]
        lines.append(row("every phase, Ansible's defaults over our settings", ratios, "{:.2f}×"))
    for part in (part for part in TITLES if part in found):
        lines += ["", f"Seconds by phase, {TITLES[part]}: {split(found[part])}."]
    return lines


def rows_of(title: str, each: list[Figures]) -> list[str]:
    ratios = [one["as it was left"] / one["every phase"] for one in each]
    looked, ran = (
        [one[way] - one[f"{way}, phases"]["proof"] for one in each] for way in ("as it was left", "every phase")
    )
    return [
        row(f"again, {title}", [one["as it was left"] for one in each], "{:.1f}"),
        row("… running every phase, in turns", [one["every phase"] for one in each], "{:.1f}"),
        row("… the one over the other", ratios, "{:.2f}×", "≤ 0.5×"),
        f"| … without the proof, which always runs | {spread(looked, '{:.1f}')} against {spread(ran, '{:.1f}')} |  |",
        row("… CPU-seconds of the controller", [one["as it was left, CPU"] for one in each], "{:.1f}"),
        row("… running every phase", [one["every phase, CPU"] for one in each], "{:.1f}"),
    ]


def split(each: list[Figures]) -> str:
    """The medians; what an earlier run did not have counts as nothing."""
    names = each[0]["every phase, phases"]
    took = {name: median([one["every phase, phases"].get(name, 0.0) for one in each]) for name in names}
    looked = median([one["as it was left, phases"].get("as_left", 0.0) for one in each])
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items() if name != "as_left")
    return f"{shown}; the look in their place {looked:.1f}"


PARTS = {"bare": lambda there: again(there, **BARE), "whole": lambda there: again(there, **WHOLE), "settings": settings}


def main() -> int:
    return bench(__doc__, NAME, bootstrapped_trio(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
