"""The one file to post: machine, cards, versions, each line with its seconds and figures; nothing that is private."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

from plugins.module_utils.motley.resolving import is_address
from tests.gpu.machine import ROOT, Machine
from tests.gpu.results import Result, code_hash
from tests.gpu.table import table

MOST = 16
"""The longest list that is no log."""
LOGIN = re.compile(r"[\w.+-]+@[\w.-]+")
PATH = re.compile(r"(?<![\w.])~?/[\w.@+-][^\s'\",;:)|]*")
HARDWARE = re.compile(r"\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b|\b(?:en|wl)x[0-9a-f]{12}\b", re.IGNORECASE)
IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
IPV6 = re.compile(r"(?<![\w.:])[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(?!\w)", re.IGNORECASE)
Words = dict[str, str]


def file_name(machine: Machine) -> str:
    return f"to-post{'-pair' if machine.pair else ''}.md"


def post(machine: Machine, results: list[Result], date: str) -> str:
    lines = [
        *("# make test-gpu", "", f"- machine: {system()}"),
        *(f"- card: {card(one)}" for one in machine.cards),
        *(f"- card of the {place} machine: {name}" for place, name in cards_of_pair(machine, results)),
        *(f"- Motley: {commit()}code {code_hash()}", "", *table(machine, results, date), "", "```json"),
        *(json.dumps(one) for one in map(figures, results) if one),
        "```",
    ]
    return without_private("\n".join(lines), private(machine)) + "\n"


def card(found: dict[str, Any]) -> str:
    major, minor = found["capability"]
    return f"{found['name']}, {found['memory_bytes'] / 2**30:.1f} GiB, compute capability {major}.{minor}"


def cards_of_pair(machine: Machine, results: list[Result]) -> list[tuple[str, str]]:
    gpus = [(one.get("values") or {}).get("gpus") for one in results]
    found: dict[str, list[str]] = next(filter(None, gpus), {})
    places = zip(("first", "second"), machine.pair, strict=False)
    return [(place, ", ".join(found[node]) or "none") for place, node in places if node in found]


def figures(found: Result) -> dict[str, Any]:
    """The numbers of a line. Its words are in the table; logs stay at home."""
    numbers = only_numbers(found.get("values"))
    return {"line": found["line"], "seconds": found["seconds"], "figures": numbers} if "seconds" in found else {}


def only_numbers(value: Any) -> Any:
    """None where nothing is left."""
    if isinstance(value, dict) and "events" not in value:
        kept = {name: number for name, one in value.items() if (number := only_numbers(one)) is not None}
        return kept or None
    if isinstance(value, list) and len(value) <= MOST:
        kept_ones = [number for one in value if (number := only_numbers(one)) is not None]
        return kept_ones or None
    return value if isinstance(value, (int, float)) else None


def private(machine: Machine) -> Words:
    """Words of this machine that nobody else needs, and what stands there instead."""
    host = socket.gethostname()
    words = {str(ROOT): "(path)", str(Path.home()): "(path)", host: "(host)", host.partition(".")[0]: "(host)"}
    words |= {name: "(user)" for name in (getpass.getuser(), os.environ.get("SUDO_USER", "")) if name != "root"}
    words |= dict(zip(machine.pair, ("(first)", "(second)"), strict=False))
    return {word: said for word, said in words.items() if word not in ("", "/", "localhost")}


def without_private(text: str, words: Words) -> str:
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", words[word], text)
    for private_form, said in ((LOGIN, "(login)"), (HARDWARE, "(address)"), (IPV4, "(address)"), (PATH, "(path)")):
        text = private_form.sub(said, text)
    return IPV6.sub(lambda found: "(address)" if is_address(found[0].rstrip(".:")) else found[0], text)


def system() -> str:
    processor = field("/proc/cpuinfo", "model name") or platform.machine()
    memory = int((field("/proc/meminfo", "MemTotal") or "0").split()[0])
    name = field("/etc/os-release", "PRETTY_NAME").strip('"') or platform.system()
    return f"{name}, Linux {platform.release()}, {processor}, {os.cpu_count()} threads, {memory / 2**20:.0f} GiB"


def field(file: str, name: str) -> str:
    try:
        found = re.search(rf"(?m)^{name}\s*[:=]\s*(.*)$", Path(file).read_text())
    except OSError:
        return ""
    return found[1].strip() if found else ""


def commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return f"commit {done.stdout.strip()}, " if done.returncode == 0 else ""
