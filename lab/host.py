"""One host: its disk, its cables, its cgroup and its power."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from lab import cgroups, network
from lab.disk import Disk
from lab.place import Place
from lab.profile import HostSpec, Profile
from lab.shapes.shape import NETWORK, Machine, Shape
from lab.shell import HANG_S, LabError, outcome, run

SUPERVISE = Path(__file__).parent / "supervise.sh"
SHARED = "/srv/shared"
"""A folder of all hosts of a lab that has one (Slurm's), as over NFS; cut off from the network, a host keeps it."""
NSPAWN_SETTINGS = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    place: Place
    profile: Profile
    spec: HostSpec
    layers: tuple[Path, ...]
    """What lies under its own disk, uppermost first; the last is the base."""
    suite: str
    shapes: tuple[Shape, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def folder(self) -> Path:
        return self.place.root / "hosts" / self.name

    @property
    def disk(self) -> Disk:
        return Disk(self.folder)

    @property
    def namespace(self) -> str:
        return self.place.host_namespace(self.name)

    @property
    def cgroup(self) -> str:
        return f"{self.place.cgroup}/{self.name}"

    @property
    def cables(self) -> list[network.Cable]:
        return network.host_cables(self.place, self.profile, self.spec)

    @property
    def cable(self) -> network.Cable:
        return self.cables[0]

    @property
    def ssh_port(self) -> int:
        """The port at which its installer or its owner let its sshd listen."""
        return next((shape.ssh_port for shape in self.shapes if shape.ssh_port != 22), 22)

    @property
    def repository(self) -> str:
        """The address at which its apt finds packages: a folder for each suite."""
        return f"http://{self.profile.gateway}/{self.suite}"

    @property
    def hardware(self) -> Path:
        """What its simulated hardware says of itself; bound into the host, changed from outside."""
        return self.folder / "hardware"

    @property
    def kernel_log(self) -> Path:
        """What its kernel says: a container has no such log of its own, and must not see the real machine's."""
        return self.folder / "kmsg"

    # -- life ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """A new machine, switched off."""
        self.folder.mkdir(parents=True, exist_ok=True)
        network.plug_in_host(self.place, self.profile, self.spec)
        self.disk.create()
        self.disk.mount(list(self.layers))

    def as_installed(self, address: str) -> None:
        """What the installer writes that differs from machine to machine."""
        root = self.disk.root
        (root / "etc/machine-id").write_text(uuid.uuid4().hex + "\n")
        new_host_keys(root)
        if not any(shape.decides == NETWORK for shape in self.shapes):
            self._write_netplan(address)
        sources = root / "etc/apt/sources.list.d/lab.list"
        sources.write_text(f"deb [trusted=yes] {self.repository}/ ./\n")
        machine = Machine(root=root, spec=self.spec, profile=self.profile, address=address)
        for shape in self.shapes:
            shape.write(machine)

    def _write_netplan(self, address: str) -> None:
        lan, *spare = self.spec.nics
        plan = self.disk.root / "etc/netplan/00-installer-config.yaml"
        plan.write_text(
            "# This is the network config written by the installer\n"
            "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n"
            f"    {lan}:\n      dhcp4: false\n      accept-ra: false\n"
            f"      addresses: [{address}/{self.profile.network.prefixlen}]\n"
            f"      routes: [{{to: default, via: {self.profile.gateway}}}]\n"
            f"      nameservers: {{addresses: [{self.profile.gateway}]}}\n"
            + "".join(f"    {nic}:\n      dhcp4: true\n      optional: true\n" for nic in spare)
        )
        plan.chmod(0o600)

    def destroy(self) -> None:
        self._kill()
        self.disk.unmount()
        network.unplug_host(self.place, self.profile, self.spec)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- power -----------------------------------------------------------------------------------------------

    @property
    def supervisor(self) -> int | None:
        return _living(self.folder / "supervisor.pid")

    @property
    def running(self) -> bool:
        return self.supervisor is not None

    def power_on(self) -> None:
        """Start booting and return at once; `wait_until_up` waits for it."""
        if self.running:
            return
        groups = cgroups.create(self.cgroup)
        shutil.rmtree(self.disk.root / "var/lib/simulated-nic", ignore_errors=True)  # a driver's start disarms its card
        self.hardware.mkdir(exist_ok=True)
        kernel_log = self._open_kernel_log()
        container = [
            # From 256 on it mounts by the host's name outside the host too: what a power cut leaves must go with it.
            *"unshare --mount --propagation slave".split(),
            *"systemd-nspawn --quiet --register=no --keep-unit --boot --capability=CAP_NET_ADMIN".split(),
            *"--link-journal=no --resolv-conf=off --timezone=off --console=pipe --kill-signal=SIGRTMIN+3".split(),
            f"--directory={self.disk.root}",
            f"--machine={self.name}",
            f"--network-namespace-path=/run/netns/{self.namespace}",
            f"--bind-ro={self.hardware}:/run/simulated-hardware",
            f"--bind={self.kernel_log}:/dev/kmsg",
            *([f"--bind={self.place.shared}:{SHARED}"] if self.place.shared.exists() else []),
            *(["--bind=/dev/net/tun"] if Path("/dev/net/tun").exists() else []),  # a VPN's device
        ]
        with (self.folder / "console.log").open("a") as console:
            supervisor = subprocess.Popen(
                [SUPERVISE, self.namespace, self.folder / "nspawn.pid", " ".join(map(str, groups)), "--", *container],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                env=os.environ | NSPAWN_SETTINGS,
                pass_fds=[kernel_log],
            )
        os.close(kernel_log)
        (self.folder / "supervisor.pid").write_text(f"{supervisor.pid} {_started(supervisor.pid)}")

    def _open_kernel_log(self) -> int:
        """The pipe that is its /dev/kmsg, open: whoever opens it in the host waits for no reader while this one is."""
        if not self.kernel_log.exists():
            os.mkfifo(self.kernel_log, 0o600)
        return os.open(self.kernel_log, os.O_RDWR)

    def wait_until_up(self, timeout_s: float = HANG_S) -> None:
        """Up means that its sshd greets the controller."""
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            if not self.running:
                raise LabError(f"{self.name} did not boot: {self.console_tail()}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.name} does not answer on port {self.ssh_port} after {timeout_s:g} s: {self.console_tail()}"
                )
            time.sleep(0.05)

    def answers(self, namespace: str | None = None) -> bool:
        """Whether another machine (the controller, if none is named) is greeted by its sshd."""
        greet = 'exec 3<>"/dev/tcp/$1/$2" && read -r -t 5 greeting <&3 && [[ $greeting == SSH-* ]]'
        ask = ["ip", "netns", "exec", namespace or self.place.controller, "timeout", "5", "bash", "-c", greet, "-"]
        here = network.addresses(self.namespace)
        return any(outcome(*ask, address, str(self.ssh_port)).returncode == 0 for address in here)

    def power_off(self, timeout_s: float = 120) -> None:
        """The power button: an orderly shutdown."""
        pid = self.supervisor
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while self.running:
            if time.monotonic() > deadline:
                self.power_cut()
                return
            time.sleep(0.02)

    def power_cut(self) -> None:
        """The plug is pulled: the link goes first, so that no closing packet gets out."""
        for cable in self.cables:
            network.set_cable(cable, plugged=False)
        self._kill()

    def _kill(self) -> None:
        if pid := self.supervisor:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        cgroups.remove(self.cgroup)

    def restore_power(self) -> None:
        for cable in self.cables:
            network.set_cable(cable, plugged=True)
        self.power_on()

    def boot(self) -> None:
        self.restore_power()
        self.wait_until_up()

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """The number of its PID 1 on this machine."""
        nspawn = _read_pid(self.folder / "nspawn.pid")
        children = Path(f"/proc/{nspawn}/task/{nspawn}/children")
        pids = children.read_text().split() if nspawn and children.exists() else []
        if not pids:
            raise LabError(f"{self.name} is not running")
        return int(pids[0])

    def inside(self, *argv: str) -> list[str]:
        """The command line that runs a program as root in the host, in its cgroup and so under its quota."""
        joined = " ".join(f"{tree / self.cgroup}/lab" for tree in cgroups.trees())
        join = 'for c in $1; do mkdir -p "$c"; echo $$ >"$c/cgroup.procs"; done; shift; exec "$@"'
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        # What root imports here must leave no files of root's in the user's folders.
        return ["bash", "-c", join, "-", joined, *enter, "--", "env", "PYTHONDONTWRITEBYTECODE=1", *argv]

    def run(self, *argv: str, check: bool = True, stdin: str | None = None, timeout_s: float = HANG_S) -> str:
        return run(*self.inside(*argv), check=check, stdin=stdin, timeout_s=timeout_s)

    def outcome(self, *argv: str, timeout_s: float = HANG_S) -> subprocess.CompletedProcess[str]:
        return outcome(*self.inside(*argv), timeout_s=timeout_s)

    def console_tail(self) -> str:
        log = self.folder / "console.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return " / ".join(line.strip() for line in lines[-3:]) or "its console is empty"


def new_host_keys(root: Path) -> None:
    for old in (root / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    # The default of 3072 bits takes a third of a second for each life of each host.
    run("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", root / "etc/ssh/ssh_host_rsa_key")
    run("ssh-keygen", "-q", "-A", "-f", root)


def _read_pid(file: Path) -> int | None:
    try:
        return int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _started(pid: int) -> str:
    """When the kernel started it: a number that another process with the same pid does not have."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def _living(file: Path) -> int | None:
    """The process that the file names, if that very process still lives."""
    try:
        pid, started = file.read_text().split()
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return int(pid) if state != "Z" and _started(int(pid)) == started else None
    except (OSError, ValueError, IndexError):
        return None
