"""A bootstrap of machines that are bootstrapped already: with our settings of Ansible, in turns with its defaults.

    make bench PARTS=bootstrap
    python -m tests.bench.bootstrap [--repeats 3] [--all]

The defaults find our roles and plugins, and are Ansible's own otherwise (forks, pipelining, connections). Ends with
where the time of `make bootstrap` goes, phase by phase. --all: with drivers (simulated), environment and proof as well;
shown only.
"""

from __future__ import annotations

import argparse
import configparser
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import base
from lab import lab as labs
from lab.place import Place
from lab.profile import PASSWORD
from tests.bench.page import put, row
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, Cluster, start

NAME = "bootstrap"
UP_TO_POWER = ("contact", "preflight", "ssh_trust", "hostname", "static_ip", "firewall", "clock", "power")
OF_THE_PROJECT = ("roles_path", "library", "module_utils", "filter_plugins", "action_plugins")
ALL: dict[str, Any] = {
    "motley_gpu_driver_manage": True,
    "motley_python_env_manage": True,
    "motley_python_env_sets": ["node-cpu"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    place = Place(name=f"bench{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(start(place.name, "trio", base.default_suite(), Path(folder)), Path(folder), args)
    finally:
        labs.down(place)
    return 0


def measure(cluster: Cluster, folder: Path, args: argparse.Namespace) -> None:
    person = Person(cluster, folder)
    person.writes(**(ALL if args.all else {}))
    fresh = seconds_of_make(person)
    settings = {"ours": REPOSITORY / "ansible.cfg", "Ansible's defaults": defaults(folder)}
    took: dict[str, list[float]] = {"make bootstrap": [], **{name: [] for name in settings}}
    computed: dict[str, list[float]] = {name: [] for name in settings}
    short: list[float] = []
    for _ in range(args.repeats):
        took["make bootstrap"].append(seconds_of_make(person))
        short.append(seconds_of(person, UP_TO_POWER))
        for name, file in settings.items():
            before = cpu_seconds()
            took[name].append(seconds_of_playbook(person, file))
            computed[name].append(cpu_seconds() - before)
    lines = [
        "| a bootstrap of three machines, without drivers and environment | seconds | aim |",
        "| --- | --- | --- |",
    ]
    lines.append(row("fresh", [fresh], "{:.1f}"))
    lines += [row(f"again, {name}", each, "{:.1f}") for name, each in took.items()]
    lines.append(row("… of make bootstrap, contact to power", short, "{:.1f}", "≤ 20"))
    ratios = [theirs / ours for ours, theirs in zip(took["ours"], took["Ansible's defaults"], strict=True)]
    lines.append(row("defaults over ours", ratios, "{:.2f}×", "≥ 2.5×"))
    lines += [row(f"CPU-seconds of the controller, {name}", each, "{:.1f}") for name, each in computed.items()]
    last = person.whole_receipts()[-1]
    phases = last["nodes"]["gpu-master"]["phases"]
    split = ", ".join(f"{name} {told['seconds']:.1f}" for name, told in phases.items() if told["seconds"] >= 0.1)
    lines += ["", f"The last `make bootstrap`, {last['seconds']:.1f} s within: {split}."]
    if args.all:
        print("\n".join(lines))
    else:
        put(NAME, lines)


def seconds_of_make(person: Person) -> float:
    since = time.monotonic()
    person.bootstraps()
    return time.monotonic() - since


def seconds_of(person: Person, phases: Sequence[str]) -> float:
    """Of the last run, on its slowest node."""
    nodes = person.whole_receipts()[-1]["nodes"].values()
    return max(sum(float(node["phases"][phase]["seconds"]) for phase in phases) for node in nodes)


def cpu_seconds() -> float:
    """Of all programs that were waited for: other work on the machine lengthens runs, and leaves this as it is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of_playbook(person: Person, settings: Path) -> float:
    password = person.folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    env = {"ANSIBLE_CONFIG": str(settings), "ANSIBLE_BECOME_PASSWORD_FILE": str(password)}
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


if __name__ == "__main__":
    sys.exit(main())
