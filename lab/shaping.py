"""What a cable does to all that passes over it: its speed (tbf), and delay, jitter and loss (netem, or delay.py)."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from lab import services
from lab.network import Cable
from lab.place import Place
from lab.shell import LabError, outcome, run

DELAY = Path(__file__).parent / "delay.py"


def set_rate(cable: Cable, rate_mbit: float | None) -> None:
    """Shape both directions; 128 kB of burst is what gigabit needs to be reached at all."""
    for namespace, device in ((cable.namespace, cable.nic), (cable.switch, cable.port)):
        if rate_mbit is None:
            outcome("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")
        else:
            burst_kb = 128 if rate_mbit >= 200 else 32
            shape = f"root tbf rate {rate_mbit:g}mbit burst {burst_kb}kb latency {10 if rate_mbit >= 200 else 50}ms"
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, *shape.split())


def rate_mbit(cable: Cable) -> float | None:
    """What the cable is shaped to now."""
    found = re.search(r"rate (\d+(?:\.\d+)?)([KMG])bit", _qdisc(cable.switch, cable.port))
    if not found:
        return None
    return float(found[1]) * {"K": 0.001, "M": 1, "G": 1000}[found[2]]


def has_netem(cable: Cable) -> bool:
    """Whether this kernel has sch_netem: asked by using it."""
    qdisc = ["dev", cable.port, "root"]
    added = outcome("tc", "-n", cable.switch, "qdisc", "replace", *qdisc, "netem", "delay", "0ms").returncode == 0
    return added and outcome("tc", "-n", cable.switch, "qdisc", "delete", *qdisc).returncode == 0


def set_delay(place: Place, cable: Cable, delay_ms: float, jitter_ms: float, loss_percent: float) -> None:
    """Delay per direction. The cable is shaped inside it where netem does it, beside it where the queue does."""
    clear_delay(place, cable)
    if has_netem(cable):
        netem = f"netem limit 20000 delay {delay_ms:g}ms {jitter_ms:g}ms loss {loss_percent:g}%".split()
        for namespace, device in ((cable.namespace, cable.nic), (cable.switch, cable.port)):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *netem)
        return
    # Bridged packets pass iptables in the switch's namespace, out of the reach of the host's own firewall.
    call = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not call.exists() and shutil.which("modprobe"):
        outcome("modprobe", "br_netfilter")
    run("ip", "netns", "exec", cable.switch, "sh", "-c", f"echo 1 > {call}")
    queue = _queue(cable)
    services.start(
        place,
        f"delay-{cable.port}",
        cable.switch,
        [sys.executable, DELAY, *(f"{number:g}" for number in (queue, delay_ms, jitter_ms, loss_percent))],
    )
    waiting = Path("/proc/net/netfilter/nfnetlink_queue")
    listening = f"until grep -qE '^ +{queue} ' {waiting}; do sleep 0.02; done"
    run("ip", "netns", "exec", cable.switch, "timeout", "60", "sh", "-c", listening)
    for direction in ("--physdev-in", "--physdev-out"):
        _iptables(cable, "-A", direction, queue)


def clear_delay(place: Place, cable: Cable) -> None:
    queue = _queue(cable)
    for direction in ("--physdev-in", "--physdev-out"):
        while _iptables(cable, "-C", direction, queue, check=False):
            _iptables(cable, "-D", direction, queue)
    services.stop(place, f"delay-{cable.port}")
    for namespace, device in ((cable.namespace, cable.nic), (cable.switch, cable.port)):
        if device and "netem" in _qdisc(namespace, device):
            run("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")


def _qdisc(namespace: str, device: str) -> str:
    return run("tc", "-n", namespace, "qdisc", "show", "dev", device)


def _queue(cable: Cable) -> int:
    return int(cable.mac.rsplit(":", 1)[1], 16)


def _iptables(cable: Cable, action: str, direction: str, queue: int, *, check: bool = True) -> bool:
    program = "iptables-legacy" if shutil.which("iptables-legacy") else "iptables"
    match = f"-t mangle {action} FORWARD -m physdev --physdev-is-bridged {direction} {cable.port}"
    target = f"-j NFQUEUE --queue-num {queue} --queue-bypass"
    done = outcome("ip", "netns", "exec", cable.switch, program, *match.split(), *target.split())
    if check and done.returncode:
        raise LabError(f"delay needs iptables with NFQUEUE and physdev: {done.stderr.strip()}")
    return done.returncode == 0
