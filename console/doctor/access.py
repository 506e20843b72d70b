"""Whether the nodes can be reached, entered and administered. Pure."""

from __future__ import annotations

from console.doctor.probe_helpers import FOLDERS, Found, Skipped, bootstrap, explained
from console.doctor.readings_and_findings import Finding, NodeReadings, Readings
from console.playbook.ansible_errors import KNOCKS

OFF = (
    "nobody answers at {at}: it is off, asleep, or its cable or Wi-Fi is out",
    "wake it, check its cable, then try again",
)


def ssh(readings: Readings) -> Found:
    wrong = [finding for node in readings.nodes for finding in _contact(node)]
    good = len(readings.nodes) - len({finding.node for finding in wrong})
    return f"{good} of {len(readings.nodes)} nodes answer, by key and with the pinned host key", wrong


def _contact(node: NodeReadings) -> list[Finding]:
    state = node.contact.get("state", "off") if node.managed else "known"
    if state != "known":
        return [_stranger(node, state)]
    if not node.unreachable:
        return [explained("ssh", node.name, node.look_failed)] if node.look is None and node.look_failed else []
    if "Permission denied" in node.unreachable or "password" in node.unreachable:
        what, fix = "its SSH server refuses the controller's key", bootstrap("ssh_trust", node.name)
        return [Finding(node=node.name, what=what, fix=fix, phase="ssh_trust", safe=True)]
    return [explained("ssh", node.name, node.unreachable)]


def _stranger(node: NodeReadings, state: str) -> Finding:
    """Nobody answers, or not the machine that is meant."""
    contact = node.contact
    at = str(contact.get("address") or " or ".join(contact.get("tried", [node.address])))
    twin = str(contact.get("twin") or "")
    changed = f"it shows another host key than the one pinned on {contact.get('pinned_on') or 'an earlier day'}"
    same = f"it has the same host key as {twin}: one machine is listed twice, or one disk was copied to both"
    keys = "sudo rm /etc/ssh/ssh_host_*; sudo dpkg-reconfigure openssh-server"
    causes = {
        "changed": (
            changed,
            f"if it was reinstalled: ./motley bootstrap --repin {node.name}; else find the machine with its address",
        ),
        "double": (same, f"one machine: remove {node.name} from hosts.yml; a copied disk: on it: {keys}"),
        "new": ("it has not been bootstrapped: its host key is not pinned", "./motley bootstrap"),
        "off": KNOCKS.get(str(contact.get("knock", "")), OFF),
    }
    what, fix = causes[state]
    if state == "off" and twin:
        what, fix = f"{twin} answers at {{at}}", "compare the addresses, on both: ip -4 address"
    return Finding(probe="reach" if state == "off" else "host key", node=node.name, what=what.format(at=at), fix=fix)


def sudo(readings: Readings) -> Found:
    tried = [node for node in readings.looked_at if node.managed]
    if not tried:
        raise Skipped(FOLDERS if readings.looked_at else "no node could be checked")
    asked = [node for node in tried if node.sudo is not None]
    if not asked:
        raise Skipped("no password was given: probes that need root are skipped")
    wrong = [explained("sudo", node.name, node.sudo or "") for node in asked if node.sudo]
    return f"{len(asked) - len(wrong)} of {len(tried)} nodes let us become root", wrong
