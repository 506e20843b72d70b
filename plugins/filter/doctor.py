"""What the doctor decides while it looks: who takes part, and whether an all-reduce is worth trying. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from plugins.module_utils.motley.doctor_motley import FilesHere, RunsHere
from plugins.module_utils.motley.doctor_network import Network

# LoRA r16 on all linear layers of a model of 135 million parameters: what is exchanged where no run was yet.
FLOATS = 4_900_000
LONGEST_S = 10.0


class Look(TypedDict, total=False):
    """What doctor_info reports, as far as it is read here; None for a part that could not be read."""

    network: Network | None
    runs: RunsHere | None
    files: FilesHere | None


class Collective(TypedDict):
    why: str
    floats: int
    run_on: bool


def motley_doctor_looks(names: list[str], hostvars: Any) -> dict[str, Look]:
    """Name → what the node reported about itself, as root or else without; without those that reported nothing."""
    found = {}
    for name in names:
        for key in ("motley_doctor_as_root", "motley_doctor_as_user"):
            answer = hostvars[name].get(key) or {}
            if isinstance(answer.get("look"), dict):
                found[name] = answer["look"]
                break
    return found


def motley_doctor_at_home(looks: dict[str, Look]) -> list[str]:
    """The nodes that have their address: nobody could call the others at it."""
    return [name for name, look in looks.items() if not (network := look.get("network")) or network["nic"]]


def motley_doctor_mtu(look: Look) -> int:
    network = look.get("network")
    links = network["links"] if network else []
    return next((link["mtu"] for link in links if network and link["name"] == network["nic"]), 1500)


def motley_doctor_ports(variables: Any, rendered: Mapping[str, Any], relay_port: int) -> list[str]:
    """The ports that the next run takes, as FIRST-LAST: its agents', its groups', and the relay's before it."""
    presence, group = (
        variables[name] if name in variables else rendered[name]
        for name in ("motley_render_presence_port", "motley_render_group_ports")
    )
    return [f"{low}-{high}" for low, high in ((presence, presence), group, (relay_port, relay_port))]


def motley_doctor_collective(names: list[str], hostvars: Any, load: bool) -> Collective:
    """why: empty where an all-reduce of `floats` is to be tried. run_on: whether a run is running anywhere."""
    looks = motley_doctor_looks(names, hostvars)
    looks = {name: looks[name] for name in motley_doctor_at_home(looks)}
    on = any(runs["on"] for look in looks.values() if (runs := look.get("runs")))
    files = {name: files for name, look in looks.items() if (files := look.get("files"))}
    floats = max((facts["adapter_bytes"] for facts in files.values()), default=0) // 4 or FLOATS
    bare = [name for name in looks if name not in files or not files[name]["torch"]]
    slow, apart = _slowest_link_and_gap(looks, hostvars)
    link_s = 2 * floats * 4 * 8 / (slow * 1e6) if slow else 0.0
    if on or not load:
        why = "skipped"
    elif len(looks) < 2:
        why = "it needs two nodes"
    elif bare:
        why = f"no environment yet on {', '.join(bare)}: ./motley bootstrap --phase python_env"
    elif apart:
        why = f"{apart[0]} does not reach {apart[1]} on all ports: it could not end well"
    elif link_s > LONGEST_S:
        why = f"at {slow:.0f} Mbit/s it would take {link_s:.0f} s"
    else:
        why = ""
    return {"why": why, "floats": floats, "run_on": on}


def _slowest_link_and_gap(looks: dict[str, Look], hostvars: Any) -> tuple[float, list[str]]:
    """The slowest measured link (0: none was), and two nodes of which one does not reach the other."""
    slow, apart = 0.0, list[str]()
    for name in looks:
        measured = (hostvars[name].get("motley_doctor_links") or {}).get("links") or {}
        for peer, link in measured.items():
            speeds = [link[key] for key in ("mbit_to", "mbit_from") if link.get(key)]
            slow = min([*speeds, *([slow] if slow else [])], default=0.0)
            if (link.get("reached") or link.get("shut")) and not apart:
                apart = [name, peer]
    return slow, apart


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {
            "motley_doctor_looks": motley_doctor_looks,
            "motley_doctor_at_home": motley_doctor_at_home,
            "motley_doctor_mtu": motley_doctor_mtu,
            "motley_doctor_ports": motley_doctor_ports,
            "motley_doctor_collective": motley_doctor_collective,
        }
