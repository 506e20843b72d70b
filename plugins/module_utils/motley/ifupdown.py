"""What a machine's ifupdown has, as Debian's installer leaves it: /etc/network/interfaces and all that it includes."""

from __future__ import annotations

import io
import ipaddress
import re
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

MAIN = "/etc/network/interfaces"
NOTE = "# {nic} is netplan's, by Motley; this file before: /var/lib/motley/before/static_ip\n"
LISTS = ("auto", "allow-")  # what comes up by itself
OPENS = ("iface", "mapping", "source", "source-directory", "rename", "no-auto-down", "no-scripts", *LISTS)
# What netplan does as well as ifupdown; the rest of a NIC's words there would be lost.
KNOWN = "address netmask broadcast network gateway mtu dns-nameservers dns-nameserver dns-search dns-domain".split()
METHODS = {"inet": ("static", "dhcp"), "inet6": ("auto", "static", "dhcp")}
FOLDER_NAMES = re.compile(r"[a-zA-Z0-9_-]+")  # of the files that it reads from a source-directory
Line = tuple[str, list[str], bool]
"""The text, with continuations; its words; whether it opens a stanza."""


class Stanza(TypedDict):
    family: str
    method: str
    options: list[list[str]]
    """Each a word, and what stands behind it."""


def stanzas(root: Path = Path("/")) -> dict[str, list[Stanza]]:
    """Each NIC's stanzas, in order."""
    stanzas_of_nics: dict[str, list[Stanza]] = {}
    for text in read_all(root).values():
        for nic, stanza in stanzas_of(text.encode(errors="surrogateescape").decode(errors="replace")):
            stanzas_of_nics.setdefault(nic, []).append(stanza)
    return stanzas_of_nics


def without(nic: str, root: Path = Path("/")) -> dict[str, str]:
    """The files that name this NIC, as they are without it."""
    texts = read_all(root)
    return {path: new for path, text in texts.items() if (new := without_nic(text, nic)) != text}


def read_all(root: Path) -> dict[str, str]:
    """Path → text of all files, in the order in which they are included."""
    texts: dict[str, str] = {}
    waiting = [MAIN]
    while waiting:
        path = waiting.pop(0)
        file = root / path.lstrip("/")
        if path in texts or not file.is_file():
            continue
        texts[path] = file.read_bytes().decode("utf-8", errors="surrogateescape")
        waiting += [name for _, words, _ in lines_of(texts[path]) for name in included(root, path, words)]
    return texts


def included(root: Path, path: str, words: list[str]) -> list[str]:
    if words[:1] not in (["source"], ["source-directory"]):
        return []
    pattern = str(PurePosixPath(path).parent / " ".join(words[1:])).lstrip("/")
    files = sorted(root.glob(pattern + ("/*" if words[0] == "source-directory" else "")))
    if words[0] == "source-directory":
        files = [file for file in files if FOLDER_NAMES.fullmatch(file.name)]
    return [f"/{file.relative_to(root)}" for file in files]


def lines_of(text: str) -> list[Line]:
    """Comments have no words."""
    lines: list[Line] = []
    gathered = ""
    for line in io.StringIO(text):
        gathered += line
        if line.rstrip("\r\n").endswith("\\") and not gathered.lstrip().startswith("#"):
            continue
        words = [] if gathered.lstrip().startswith("#") else re.sub(r"\\\r?\n", " ", gathered).split()
        lines.append((gathered, words, bool(words) and words[0].startswith(OPENS)))
        gathered = ""
    return [*lines, *([(gathered, gathered.split(), False)] if gathered else [])]


def stanzas_of(text: str) -> list[tuple[str, Stanza]]:
    pairs: list[tuple[str, Stanza]] = []
    inside = False
    for _, words, opens in lines_of(text):
        if opens:
            inside = words[0] == "iface" and len(words) > 1
        if opens and inside:
            family, method, *more = [*words[2:], "", ""] if len(words) < 4 else words[2:]
            options = [[word, ""] for word in more if word]
            pairs.append((words[1], {"family": family, "method": method, "options": options}))
        elif inside and words:
            pairs[-1][1]["options"].append([words[0], " ".join(words[1:])])
    return pairs


def without_nic(text: str, nic: str) -> str:
    """The text with the NIC's stanzas as one line of ours; what brings it up names the others alone."""
    kept, inside, noted = [], False, False
    for line, words, opens in lines_of(text):
        if opens:
            inside = words[:2] == ["iface", nic]
        if not inside or not (words or line[:1] in " \t"):
            kept.append(shorter(line, words, nic) if opens else line)
        if inside and opens and not noted:
            kept.append(NOTE.format(nic=nic))
            noted = True
    return "".join(kept)


def shorter(line: str, words: list[str], nic: str) -> str:
    if not words[0].startswith(LISTS) or nic not in words[1:]:
        return line
    others = [word for word in words if word != nic]
    return f"{' '.join(others)}\n" if len(others) > 1 else ""


def beyond_netplan(name: str, stanzas: dict[str, list[Stanza]]) -> str:
    """What of ifupdown's settings netplan could not do: an option, a method, or another interface on the NIC."""
    for other, of in stanzas.items():
        words = " ".join(value for stanza in of for _, value in stanza["options"]).split()
        if other != name and (other.startswith((f"{name}.", f"{name}:")) or name in words):
            return other
    for stanza in stanzas[name]:
        if stanza["method"] not in METHODS.get(stanza["family"], ()):
            return f"{stanza['family']} {stanza['method']}"
        for option, _ in stanza["options"]:
            if option not in KNOWN:
                return str(option)
    return ""


def as_netplan(stanzas: list[Stanza]) -> dict[str, Any]:
    """netplan's words for what may stay of a NIC's settings in ifupdown."""
    kept: dict[str, Any] = {}
    for stanza in stanzas:
        options = dict(stanza["options"])
        if "mtu" in options:
            kept["mtu"] = int(options["mtu"])
        servers = options.get("dns-nameservers", options.get("dns-nameserver", "")).split()
        search = " ".join([options.get("dns-search", ""), options.get("dns-domain", "")]).split()
        named = {"addresses": servers, "search": search}
        kept["nameservers"] = {key: [*kept.get("nameservers", {}).get(key, []), *named[key]] for key in named}
        if stanza["family"] == "inet6" and stanza["method"] == "dhcp":
            kept["dhcp6"] = True
        if stanza["method"] == "static":
            address, _, prefix = options["address"].partition("/")
            prefix = prefix or options.get("netmask", "64" if stanza["family"] == "inet6" else "32")
            own = str(ipaddress.ip_interface(f"{address}/{prefix}"))
            kept["addresses"] = [*kept.get("addresses", []), own]
            if stanza["family"] == "inet6" and "gateway" in options:
                kept["routes"] = [{"to": "::/0", "via": options["gateway"]}]
    return {key: value for key, value in kept.items() if value not in ([], {"addresses": [], "search": []})}
