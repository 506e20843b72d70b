"""The whole lab: bring it up, take it down so that nothing is left, reset and snapshot its hosts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import (
    base,
    cgroups,
    disk,
    gpu,
    installed,
    layer,
    needs,
    network,
    profile,
    repository,
    services,
    shapes,
    shaping,
)
from lab.host import Host
from lab.place import Place
from lab.profile import HostSpec, Profile
from lab.shapes import Shape
from lab.shell import HANG_S, LabError, run

WATCHES = 1024
"""inotify instances that root may have, all hosts of all labs together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """What one host was installed from: a base, the shapes on it, and their folders, uppermost first."""

    suite: str
    shapes: tuple[str, ...]
    layers: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lab:
    place: Place
    profile: Profile
    suite: str
    """The base of hosts whose shape asks for no other."""
    installations: dict[str, Installation]
    """What the installer left, by host."""

    @property
    def hosts(self) -> list[Host]:
        return [self.host(spec.name) for spec in self.profile.hosts]

    def host(self, name: str) -> Host:
        spec = self.profile.host(name)
        found = self.installations[name]
        return Host(
            place=self.place,
            profile=self.profile,
            spec=spec,
            layers=self._layers_of(spec),
            suite=found.suite,
            shapes=shapes.of(found.shapes),
        )

    def some(self, names: Sequence[str]) -> list[Host]:
        return [self.host(name) for name in names] if names else self.hosts

    def _layers_of(self, spec: HostSpec) -> tuple[Path, ...]:
        """A restored snapshot lies between the host's own disk and the layers that it was made on."""
        layers = self.installations[spec.name].layers
        kept = _read(self.place).get("restored", {}).get(spec.name)
        return (Path(kept) / spec.name / "upper", *layers) if kept else layers


# -- the lab as a whole --------------------------------------------------------------------------------------


def up(
    place: Place,
    profile_name: str,
    suite: str | None = None,
    layers: Sequence[str] = (),
    shape: Sequence[str] = (),
    *,
    kept: Path | None = None,
) -> Lab:
    """A running lab of this profile: fresh hosts, each as an installer leaves it, plus any layers of software.

    `shape` has words as `--shape` takes them; without a suite each host stands on the one that its shape is known for.
    `kept` is what `keep` has left of a lab of the same hosts: they are as they were there.
    """
    chosen = profile.load(profile_name)
    installations, offered = build(chosen, suite, layers, shape)
    with locked(place):
        if _read(place):
            raise LabError(f"lab '{place.name}' is already up. `python -m lab down` first, or use another MOTLEY_LAB.")
        clear(place)  # whatever a crash may have left
        (place.shared if "slurm" in layers else place.root).mkdir(parents=True)
        lab = Lab(place=place, profile=chosen, suite=suite or base.default_suite(), installations=installations)
        _remember(lab)
        _let_hosts_watch_files()
        network.build_switch(place, chosen)
        _serve(place, chosen.gateway, offered)
        _listen_for_magic_packets(place)
        if kept:
            _boot_from(lab, kept, lab.hosts)
        else:
            each(lab.hosts, _install_and_boot)
    return lab


def build(
    chosen: Profile, suite: str | None = None, layers: Sequence[str] = (), shape: Sequence[str] = ()
) -> tuple[dict[str, Installation], dict[str, Path]]:
    """What each host stands on, and what each suite offers: made where it is not there yet, which takes minutes."""
    if missing := needs.what_is_missing():
        raise LabError("\n".join(missing), code=2)
    wanted = shapes.wanted(shape, [spec.name for spec in chosen.hosts])
    installations = {spec.name: _installation(spec, wanted[spec.name], suite, layers) for spec in chosen.hosts}
    return installations, {one.suite: repository.ensure(base.locate(one.suite)) for one in installations.values()}


def _let_hosts_watch_files() -> None:
    """Each host's systemd watches some ten; four labs come to the usual limit of 128, and then a path unit fails. It is
    as before at the next start of this machine."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    with contextlib.suppress(OSError):  # closed in a container: then there is no more room than this
        if int(limit.read_text()) < WATCHES:
            limit.write_text(f"{WATCHES}\n")


def _installation(spec: HostSpec, wanted: Sequence[Shape], suite: str | None, software: Sequence[str]) -> Installation:
    stands_on = suite or shapes.suite_of(wanted, base.default_suite())
    system = base.locate(stands_on)
    if not base.built(system):
        base.build(system)
    as_installed = shapes.layers(system, (installed.ensure(system, spec.kernel), system.root), wanted)
    return Installation(
        suite=stands_on,
        shapes=tuple(shape.name for shape in wanted),
        layers=(*(layer.LAYERS[name](system) for name in software), *as_installed),
    )


def _remember(lab: Lab) -> None:
    installations = {host: asdict(one) for host, one in lab.installations.items()}
    _write(lab.place, {"profile": lab.profile.name, "suite": lab.suite, "installations": installations})


def current(place: Place) -> Lab:
    state = _read(place)
    if not state:
        raise LabError(f"lab '{place.name}' is not up. `python -m lab up` brings it up.", code=2)
    return Lab(
        place=place,
        profile=profile.load(state["profile"]),
        suite=state["suite"],
        installations={
            host: Installation(
                suite=one["suite"], shapes=tuple(one["shapes"]), layers=tuple(Path(path) for path in one["layers"])
            )
            for host, one in state["installations"].items()
        },
    )


def down(place: Place) -> None:
    with locked(place):
        clear(place)
    place.root.with_suffix(".lock").unlink(missing_ok=True)


def clear(place: Place) -> None:
    """Take away everything that bears this lab's name, by looking at the machine and not at what we remember."""
    cgroups.remove(place.cgroup)
    _let_stragglers_end(place)
    for namespace in network.namespaces():
        if place.owns_namespace(namespace):
            run("ip", "netns", "delete", namespace)
    for folder in Path("/etc/netns").glob(f"{place.switch}*"):
        if place.owns_namespace(folder.name):
            shutil.rmtree(folder)
    disk.unmount_below(place.root)
    shutil.rmtree(place.root, ignore_errors=True)


def _let_stragglers_end(place: Place, patience_s: float = 60) -> None:
    """A lab command that was killed takes its programs with it, but not at once: one may be amid a mount."""
    deadline = time.monotonic() + patience_s
    while processes_of(place) and time.monotonic() < deadline:
        time.sleep(0.02)


def processes_of(place: Place) -> list[str]:
    """The words and groups of all processes that bear the lab's name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if ") Z " in (folder / "stat").read_text():  # ended; its parent has yet to take note
                continue
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            text = words + (folder / "cgroup").read_text()
        except OSError:
            continue
        if f"{place.root}/" in text or f"/{place.cgroup}/" in text or f"{place.switch}-" in text:
            found.append(text)
    return found


def _install_and_boot(host: Host, address: str | None = None) -> None:
    host.create()
    host.as_installed(address or host.spec.installed_address)
    gpu.plug_in(host.hardware, host.spec, **shapes.conditions(host.shapes))
    host.boot()


def _serve(place: Place, address: str, offered: Mapping[str, Path]) -> None:
    folder = place.root / "repositories"
    folder.mkdir()
    for suite, packages in offered.items():
        (folder / suite).symlink_to(packages)
    server: list[str | Path] = [sys.executable, "-m", "http.server", "--bind", address, "--directory", folder, "80"]
    services.start(place, "repository", place.controller, server)


def _listen_for_magic_packets(place: Place) -> None:
    """What delivers them to a host that is off (wake_on_lan.py)."""
    command = ["env", f"PYTHONPATH={Path(__file__).parents[1]}", sys.executable, "-m", "lab.wake_on_lan", place.name]
    services.start(place, "wake-on-lan", place.switch, command, starts_hosts=True)


# -- its hosts -----------------------------------------------------------------------------------------------


def reset(lab: Lab, names: Sequence[str], *, address: str | None = None) -> None:
    """Fresh hosts again, as an installer leaves them; at another address than the profile's, if one is given."""
    chosen = lab.some(names)
    with locked(lab.place):
        each(chosen, Host.destroy)
        _forget_restored(lab.place, [host.name for host in chosen])
        each([lab.host(host.name) for host in chosen], lambda host: _install_and_boot(host, address))


def snapshot(lab: Lab, label: str) -> None:
    """Keep all hosts as they are under a name; they are shut down in order for it, and continue from it."""
    folder = snapshot_folder(lab.place, label)
    if folder.exists():
        raise LabError(f"there is a snapshot '{label}' already")
    with locked(lab.place):
        _must_be_fresh(lab)
        each(lab.hosts, Host.power_off)
        for host in lab.hosts:
            host.disk.unmount()
            (folder / host.name).mkdir(parents=True)
            host.disk.image.rename(folder / f"{host.name}.img")
            shutil.copytree(host.hardware, folder / f"{host.name}.hardware")
        _restore(lab, folder, lab.hosts)


def keep(lab: Lab, folder: Path) -> None:
    """All hosts, shut down cleanly, in a folder that outlives this lab: others come up from it."""
    with locked(lab.place):
        _must_be_fresh(lab)
        each(lab.hosts, Host.power_off)
        for host in lab.hosts:
            (folder / host.name).mkdir(parents=True)
            run("cp", "-a", host.disk.mounted_image / "upper", folder / host.name)
            shutil.copytree(host.hardware, folder / f"{host.name}.hardware")


def _must_be_fresh(lab: Lab) -> None:
    if _read(lab.place).get("restored"):
        raise LabError("these hosts come from a snapshot themselves; reset them before taking another one", code=2)


def restore(lab: Lab, label: str, names: Sequence[str] = ()) -> None:
    if not snapshot_folder(lab.place, label).exists():
        there = ", ".join(snapshots(lab.place)) or "none"
        raise LabError(f"no snapshot '{label}' (there are: {there})", code=2)
    with locked(lab.place):
        _restore(lab, snapshot_folder(lab.place, label), lab.some(names))


def _restore(lab: Lab, folder: Path, hosts: list[Host]) -> None:
    each(hosts, Host.destroy)
    for host in hosts:
        disk.mount_read_only(folder / f"{host.name}.img", folder / host.name)
    _boot_from(lab, folder, hosts)


def _boot_from(lab: Lab, folder: Path, hosts: list[Host]) -> None:
    state = _read(lab.place)
    state.setdefault("restored", {}).update({host.name: str(folder) for host in hosts})
    _write(lab.place, state)

    def start(host: Host) -> None:
        host.create()
        shutil.copytree(folder / f"{host.name}.hardware", host.hardware, dirs_exist_ok=True)
        host.boot()

    each([lab.host(host.name) for host in hosts], start)


def snapshots(place: Place) -> list[str]:
    return sorted(path.name for path in (place.root / "snapshots").glob("*"))


def snapshot_folder(place: Place, label: str) -> Path:
    return place.root / "snapshots" / label


def limit(lab: Lab, names: Sequence[str], *, on: bool, scale: float = 1.0) -> None:
    """The profile's CPU shares, all of them times `scale`, and link speeds: for runs, not while provisioning."""
    for host in lab.some(names):
        cgroups.quota(host.cgroup, scale * host.spec.cpu_percent if on else None)
        shaping.set_rate(host.cable, host.spec.rate_mbit if on else None)


def each(hosts: Iterable[Host], act: Callable[[Host], object]) -> None:
    """Do it to all at once; the first failure is reported after all have ended."""
    with ThreadPoolExecutor(16) as pool:
        done = [pool.submit(act, host) for host in hosts]
    for one in done:
        one.result()


def wait_until(condition: Callable[[], bool], trouble: str, timeout_s: float = HANG_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{trouble} within {timeout_s:g} s")
        time.sleep(0.05)


# -- what is remembered --------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """One change at a time to one lab."""
    place.root.parent.mkdir(parents=True, exist_ok=True)
    with place.root.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lab '{place.name}' is being changed by another command, waiting", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(place: Place) -> dict[str, Any]:
    try:
        return dict(json.loads((place.root / "lab.json").read_text()))
    except FileNotFoundError:
        return {}


def _write(place: Place, state: dict[str, Any]) -> None:
    new = place.root / "lab.json.new"
    new.write_text(json.dumps(state, indent=1, default=str))
    new.rename(place.root / "lab.json")


def _forget_restored(place: Place, names: Sequence[str]) -> None:
    state = _read(place)
    state["restored"] = {host: label for host, label in state.get("restored", {}).items() if host not in names}
    _write(place, state)


def elapsed(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"
