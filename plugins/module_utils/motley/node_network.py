"""What sets up a node's network: netplan's files, the Wi-Fi network in use, who turns names into addresses."""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

NETPLAN = ("lib/netplan", "usr/lib/netplan", "etc/netplan", "run/netplan")  # a later one's file hides an earlier one's
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

Ask = Callable[..., str]


def ask(*command: str) -> str:
    """What a program prints; empty where it is not there or fails."""
    try:
        # The kernel cuts a program's name after 15 bytes: within a letter, where it is not English.
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=10,
            env={"PATH": SBIN, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def netplan_files(root: Path = Path("/")) -> dict[str, str]:
    """Path → text of the files that netplan reads, in its order: by name, whatever the folder; none that is hidden."""
    files = {file.name: file for folder in NETPLAN for file in (root / folder).glob("[!.]*.yaml") if file.exists()}
    return {f"/{files[name].relative_to(root)}": files[name].read_text(errors="replace") for name in sorted(files)}


def wifi_in_use(nic: str, ask: Ask = ask) -> dict[str, str]:
    """NetworkManager's connection and the network's name; each empty where nobody knows it."""
    uuid = ask("nmcli", "-e", "no", "-g", "GENERAL.CON-UUID", "device", "show", nic).strip()
    if uuid and uuid != "--":
        ssid = ask("nmcli", "-e", "no", "-g", "802-11-wireless.ssid", "connection", "show", "uuid", uuid)
        return {"uuid": uuid, "ssid": ssid.rstrip("\n")}
    for command, pattern in (
        (("iw", "dev", nic, "link"), r"(?m)^\s*SSID: (.*)$"),
        (("wpa_cli", "-i", nic, "status"), r"(?m)^ssid=(.*)$"),
        (("networkctl", "--no-pager", "status", nic), r"(?mi)^\s*Wi-?Fi access point: (.*) \([0-9a-f:]{17}\)"),
    ):
        if found := re.search(pattern, ask(*command)):
            return {"uuid": "", "ssid": unescaped(found[1])}
    return {"uuid": "", "ssid": ""}


def unescaped(text: str) -> str:
    r"""iw and wpa_cli write bytes that are not ASCII as \xc3."""
    octets = re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return octets.decode(errors="replace")


def name_servers(nic: str, ask: Ask = ask, root: Path = Path("/")) -> dict[str, list[str]]:
    """Name servers that the machine asks by this NIC, and search domains; never a program of its own (127.0.0.53)."""
    if dns := ask("resolvectl", "dns", nic):
        return {"servers": usable(after_colon(dns)), "search": domains(after_colon(ask("resolvectl", "domain", nic)))}
    servers, _, domain = ask("nmcli", "-g", "IP4.DNS,IP4.DOMAIN", "device", "show", nic).partition("\n")
    if servers:
        return {
            "servers": usable(servers.replace("|", " ").split()),
            "search": domains(domain.replace("|", " ").split()),
        }
    file = root / "etc/resolv.conf"
    text = file.read_text(errors="replace") if file.is_file() else ""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    return {
        "servers": usable([words[1] for words in lines if words[:1] == ["nameserver"] and len(words) > 1]),
        "search": domains([word for words in lines if words[:1] in (["search"], ["domain"]) for word in words[1:]]),
    }


def after_colon(text: str) -> list[str]:
    """The words after the colon of "Link 2 (enp5s0): a b"."""
    return text.partition("):")[2].split()


def usable(servers: list[str]) -> list[str]:
    """Addresses of other machines that are permanent. A router's public one in IPv6 is not: many have another prefix
    each day, and announce the new one by themselves."""
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []
    for server in servers:
        try:
            address = ipaddress.ip_address(server.split("#")[0])
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            addresses.append(address)
    lasting = [address for address in addresses if address.version == 4 or address.is_private]
    return list(dict.fromkeys(map(str, lasting or addresses)))


def domains(words: list[str]) -> list[str]:
    """The domains in which a short name is looked for; resolved marks the others with a tilde."""
    return list(dict.fromkeys(word for word in words if not word.startswith(("~", "(")) and word != "."))


def resolv_conf() -> str:
    """link: a service writes it; file: whoever comes last."""
    path = Path("/etc/resolv.conf")
    return "link" if path.is_symlink() else "file" if path.is_file() else ""
