"""What a shape is: what an installer and an owner left on a machine, in parts that can be laid on one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.profile import HostSpec, Profile
from lab.shell import run

NETWORK = "who sets up its network"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One host on the day of its installation: still a folder, not yet booted."""

    root: Path
    spec: HostSpec
    profile: Profile
    address: str

    @property
    def lan(self) -> str:
        return self.spec.nics[0]

    @property
    def others(self) -> list[HostSpec]:
        return [host for host in self.profile.hosts if host.name != self.spec.name]

    @property
    def prefix(self) -> int:
        return self.profile.network.prefixlen

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        write(self.root, path, text, mode)

    def has(self, path: str) -> bool:
        return (self.root / path).exists()


def _nothing(_: object) -> None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    name: str
    meaning: str
    home: str
    """The file of its module: when that changes, its layer is built again."""
    suite: str = ""
    """The base that it stands on unless another is asked for."""
    decides: str = ""
    """What only one shape of a machine can say."""
    packages: tuple[str, ...] = ()
    """Real parts, from the suite's own mirror."""
    simulated: tuple[str, ...] = ()
    """Parts of lab/fake_packages.py."""
    language: str = ""
    """In which the programs of its base speak."""
    install: Callable[[Path], None] = _nothing
    """What it does to every machine alike; kept as a layer."""
    write: Callable[[Machine], None] = _nothing
    """What differs from machine to machine."""
    hardware: Mapping[str, bool] = field(default_factory=dict)
    """What its simulated hardware shows: fields of gpu.Condition."""
    ssh_port: int = 22

    @property
    def has_layer(self) -> bool:
        return bool(self.packages or self.simulated or self.language) or self.install is not _nothing


def write(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Writes a file with the line ends that the text has."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    file.chmod(mode)


def inside_with_proc(root: Path, script: str) -> None:
    """Runs a script that looks at processes or would set up a firewall, so that this machine's own are not meant."""
    enter = 'mount -t proc proc "$1/proc" && exec chroot "$1" sh -ec "$2"'
    run(*"unshare --net --mount --pid --fork sh -c".split(), enter, "-", root, script)


def inside(root: Path, *argv: str, stdin: str | None = None) -> str:
    return run("chroot", root, *argv, stdin=stdin)
