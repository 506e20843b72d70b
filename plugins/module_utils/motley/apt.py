"""apt and dpkg by their commands. Runs on a node as root; every call waits for another program that has the lock."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from .driver_packages import Package, Simulated, parse_simulation
from .errors import ModuleError

SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/preferences.d")
RUN = Path("/run/motley-apt")
ASIDE: tuple[str, ...] = ("-o", f"Dir::State::lists={RUN}/lists", "-o", f"Dir::Cache={RUN}/cache")
FRESH_S = 3600
# No questions, no restarts of services behind our back, the person's own edits of configuration files stay.
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
ANSWERS = ("-y", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")


class Apt:
    def __init__(self, wait_s: int = 300, look_only: bool = False) -> None:
        """`look_only`: package lists are fetched to the side, the system's own stay as they are."""
        self.wait_s = wait_s
        self.wait = ("-o", f"DPkg::Lock::Timeout={wait_s}")
        self.look_only = look_only
        # Where none were fetched to the side yet, the system's are what there is to look at.
        self.aside = ASIDE if self._wants_aside() and fresh(Path("aside")) else ()

    def refresh(self) -> str:
        """Fetch the package lists unless they are young; returns what apt complained of."""
        self.aside = ASIDE if self._wants_aside() else ()
        stamp = Path("aside" if self.aside else "updated")
        if fresh(stamp):
            return ""
        for option in self.aside[1::2]:
            (Path(option.partition("=")[2]) / "partial").mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + self.wait_s
        while True:  # the lists have a lock of their own, for which apt itself does not wait
            done = self._run("apt-get", *self.wait, *self.aside, "-qq", "update")
            if done.returncode == 0 or not re.search(r"\block\b", done.stderr) or time.monotonic() > end:
                break
            time.sleep(2)
        if done.returncode:
            return trouble_of(done)
        RUN.mkdir(exist_ok=True)
        (RUN / stamp).touch()
        return ""

    def _wants_aside(self) -> bool:
        return self.look_only and not fresh(Path("updated"))

    def packages(self) -> dict[str, Package]:
        """Everything installed, by name (with its architecture where that is not the machine's own)."""
        fields = "${db:Status-Abbrev}\t${binary:Package}\t${Version}\t${Pre-Depends}, ${Depends}\n"
        architecture = self._must("dpkg", "--print-architecture").strip()
        auto = set(self._must("apt-mark", "showauto").split())
        installed = {}
        for line in self._must("dpkg-query", "-W", "-f", fields).splitlines():
            state, name, version, depends = line.split("\t")
            if state[1] not in "nc":
                name = name.removesuffix(f":{architecture}")
                installed[name] = Package(version, depends, auto=name in auto, held=state[0] == "h")
        return installed

    def candidates(self, names: list[str]) -> dict[str, str]:
        """The version that would be installed now; names that nobody offers are missing."""
        if not names:
            return {}
        output = self._must("apt-cache", *self.aside, "policy", *names)
        offers = re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", output, re.MULTILINE)
        return {name: version for name, version in offers if version != "(none)"}

    def versions(self, name: str) -> list[str]:
        """All versions of a package that are offered."""
        done = self._run("apt-cache", *self.aside, "madison", name)
        return [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.count("|") == 2]

    def depends(self, name: str) -> str:
        """What the offered package needs, as it says it."""
        shown = self._run("apt-cache", *self.aside, "show", "--no-all-versions", name).stdout
        return "".join(re.findall(r"^Depends: (.*)$", shown, re.MULTILINE)[:1])

    def needs(self, names: list[str]) -> set[str]:
        """What is installed and these need, at whatever remove; one of several that would do is needed, too."""
        others = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
        only = ["--recurse", "--installed", *(f"--no-{kind}" for kind in others)]
        output = self._must("apt-cache", "depends", *only, *names) if names else ""
        return {line for line in output.splitlines() if line[:1].strip()}

    def simulate(self, *words: str) -> Simulated:
        done = self._run("apt-get", *self.aside, "-s", "-o", "Debug::NoLocking=1", *ANSWERS, *words)
        return Simulated(trouble=trouble_of(done)) if done.returncode else parse_simulation(done.stdout)

    def change(self, *words: str) -> None:
        done = self._run("apt-get", *self.wait, "-qq", *ANSWERS, *words)
        if done.returncode:
            raise ModuleError(trouble_of(done))

    def interrupted(self) -> bool:
        return bool(self._run("dpkg", "--audit").stdout.strip())

    def finish_interrupted(self) -> bool:
        """What a power cut left half configured; whether there was any."""
        if not self.interrupted():
            return False
        self._run("dpkg", "--configure", "-a")  # what lacks another package is for apt to fix
        self.change("-f", "install")
        return True

    def mark(self, how: str, names: list[str]) -> None:
        """hold, unhold, auto or manual."""
        if names:
            self._must("apt-mark", how, *names)

    def _must(self, *command: str) -> str:
        done = self._run(*command)
        if done.returncode:
            raise ModuleError(f"{command[0]}: {trouble_of(done)}")
        return done.stdout

    @staticmethod
    def _run(*command: str) -> subprocess.CompletedProcess[str]:
        """A package's own scripts, and needrestart with the names of programs, print in whatever encoding."""
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, **QUIET},
        )  # fmt: skip


def fresh(stamp: Path) -> bool:
    """Young, and younger than the list of sources."""
    file = RUN / stamp
    if not file.exists():
        return False
    sources = [Path(source) for source in SOURCES]
    files = [file for source in sources if source.is_dir() for file in source.iterdir()]
    newest = max((path.stat().st_mtime for path in [*sources, *files] if path.exists()), default=0)
    return file.stat().st_mtime > max(newest, time.time() - FRESH_S)


def trouble_of(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")]
    unmet = [line for line in lines if ": Depends:" in line or ": Conflicts:" in line]
    return "; ".join([*unmet[:2], *errors[:1]]) or (lines[-1] if lines else f"exit status {done.returncode}")
