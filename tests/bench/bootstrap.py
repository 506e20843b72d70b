"""A bootstrap of machines that are bootstrapped already: every phase looks, and changes nothing.

    make bench PARTS=bootstrap

Three hosts of the lab with simulated cards. `bare` is without drivers, environment and all-reduce, `whole` with them;
`settings` is the same with our settings of Ansible, in turns with Ansible's own (which find our roles and plugins).
"""

from __future__ import annotations

import configparser
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab.profile import PASSWORD
from tests.bench.page import Figures, Found, bench, cpu_seconds, row
from tests.support.bootstrap import Person, person_with_trio
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of

NAME = "bootstrap"
OF_THE_PROJECT = ("roles_path", "library", "module_utils", "filter_plugins", "lookup_plugins", "action_plugins")
WHOLE: dict[str, Any] = {
    "motley_gpu_driver_manage": True,
    "motley_python_env_manage": True,
    "motley_python_env_sets": ["node-cpu"],
}
BARE: dict[str, Any] = {"motley_proof_collective": False}
TITLES = {"bare": "without drivers and environment", "whole": "with drivers, environment and all-reduce"}
AIMS = {"bare": "≤ 20 s", "whole": ""}


@dataclass
class Bootstrapped:
    person: Person
    fresh_s: float


@contextlib.contextmanager
def bootstrapped_trio() -> Iterator[Bootstrapped]:
    with person_with_trio("benchbootstrap") as person:
        person.writes(**WHOLE)
        since = time.monotonic()
        person.bootstraps()
        yield Bootstrapped(person, time.monotonic() - since)


def again(there: Bootstrapped, **wanted: Any) -> Figures:
    there.person.writes(**wanted)
    before, since = cpu_seconds(), time.monotonic()
    said = there.person.bootstraps()
    took, cpu = time.monotonic() - since, cpu_seconds() - before
    if any(said.changed().values()):
        raise SystemExit(f"it did more than look:\n{said.out}")
    phases = said.receipt["nodes"]["gpu-master"]["phases"]
    seconds = {name: phase["seconds"] for name, phase in phases.items()}
    return {"fresh": there.fresh_s, "again": took, "CPU": cpu, "phases": seconds}


def settings(there: Bootstrapped) -> Figures:
    there.person.writes(**BARE)
    files = {"ours": REPOSITORY / "ansible.cfg", "Ansible's defaults": defaults(there.person.folder)}
    return {name: seconds_of_playbook(there.person, file) for name, file in files.items()}


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


def table(found: Found) -> list[str]:
    rows = []
    for part, each in measured(found):
        rows.append(row(f"again, {TITLES[part]}", [one["again"] for one in each], "{:.1f}", AIMS[part]))
        rows.append(row("… CPU-seconds of the controller", [one["CPU"] for one in each], "{:.1f}"))
    fresh = [*dict.fromkeys(one["fresh"] for one in found["whole"])]
    rows.append(row(f"fresh, {TITLES['whole']}", fresh, "{:.1f}"))
    ratios = [one["Ansible's defaults"] / one["ours"] for one in found["settings"]]
    rows.append(row("again, Ansible's defaults over our settings", ratios, "{:.2f}×"))
    lines = table_of(("a bootstrap of three machines", "seconds", "aim"), rows)
    for part, each in measured(found):
        lines += ["", f"Seconds by phase, {TITLES[part]}: {split(each)}."]
    return lines


def measured(found: Found) -> list[tuple[str, list[Figures]]]:
    return [(part, found[part]) for part in TITLES]


def split(each: list[Figures]) -> str:
    """The medians; what an earlier run did not have counts as nothing."""
    took = {name: median([one["phases"].get(name, 0.0) for one in each]) for name in each[0]["phases"]}
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items())


PARTS = {"bare": lambda there: again(there, **BARE), "whole": lambda there: again(there, **WHOLE), "settings": settings}


def main() -> int:
    return bench(__doc__, NAME, bootstrapped_trio(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
