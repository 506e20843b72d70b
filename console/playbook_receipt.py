"""What a run did, proved and took, as JSON and as a page to read; secrets and public addresses are masked."""

from __future__ import annotations

import contextlib
import html
import ipaddress
import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from console.playbook.playbook_progress import Phase, Progress
from train.files import write_atomic
from train.plan.speed.step_time import LINK_EFFICIENCY

ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|(?<![\w:.])[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
"""What may be one, of IPv4 or IPv6; a time and a card's address (MAC) look like one as well."""

Data = dict[str, Any]
KEPT = ("seconds", "changed", "files", "proven", "says", "measured")
"""What a receipt says of a phase beside its failure: the fields of Phase that are for whoever reads it later."""


def masked(text: str, secrets: tuple[str, ...]) -> str:
    """Passwords become stars; of an address in the open internet only the beginning stays."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "********")
            text = text.replace(json.dumps(secret)[1:-1], "********")
    return ADDRESS.sub(lambda match: _mask_address(match[0]), text)


def _mask_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if not address.is_global:
        return text
    return ".".join(text.split(".")[:2]) + ".x.x" if address.version == 4 else ":".join(text.split(":")[:2]) + ":x"


def as_data(verb: str, inventory: str, progress: Progress, *, outcome: str, seconds: float) -> Data:
    """`outcome` is proven, incomplete or "check only"."""
    return {
        "verb": verb,
        "inventory": inventory,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(seconds, 1),
        "ok": outcome == "proven",
        "outcome": outcome,
        "nodes": {
            node.name: {
                "off": node.off,
                "changed": node.changed,
                "phases": {name: _phase(phase, node.name) for name, phase in node.phases.items() if phase.ran},
            }
            for node in progress.nodes.values()
        },
    }


def _phase(phase: Phase, node: str) -> Data:
    failure = None
    if cause := phase.failure:
        failure = {"task": phase.failed_task, **asdict(cause), "fix": cause.fix_on(node)}
    kept = {name: getattr(phase, name) for name in KEPT}
    return kept | {"seconds": round(phase.seconds, 1), "failure": failure}


def write(folder: Path, data: Data, secrets: tuple[str, ...]) -> Path:
    """Writes both files, named by time and verb; returns the page's path."""
    text = masked(json.dumps(data, indent=1, ensure_ascii=False), secrets)
    stem = folder / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{data['verb']}"
    write_atomic(stem.with_suffix(".json"), f"{text}\n".encode())  # every plan reads the newest
    write_atomic(stem.with_suffix(".html"), page(json.loads(text)).encode())
    return stem.with_suffix(".html")


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;"
    "border-bottom:1px solid #ddd}.bad{color:#b00}.quiet{color:#777}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#444}.bad{color:#f77}}"
)


def page(data: Data) -> str:
    title = f"{data['verb']}: {data['outcome']}"
    parts = [f"<h1>{html.escape(title)}</h1>"]
    parts.append(f"<p>{data['finished']}, {data['seconds']} s, inventory {html.escape(data['inventory'])}</p>")
    for name, node in data["nodes"].items():
        parts.append(f"<h2>{html.escape(name)}</h2>")
        if node["off"]:
            parts.append(f"<p class=bad>skipped: {html.escape(node['off'])}</p>")
            continue
        parts.append("<table><tr><th>phase<th>changed<th>proven<th>seconds")
        parts += [_row(phase, result) for phase, result in node["phases"].items()]
        parts.append("</table>")
    top = f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
    return top + "\n".join(parts) + "\n"


def _row(phase: str, result: Data) -> str:
    changed = "<br>".join(map(html.escape, result["changed"] + result["files"])) or "<span class=quiet>nothing</span>"
    proven = "<br>".join(map(html.escape, result["proven"] + result["says"]))
    if failure := result["failure"]:
        lines = [failure["task"], *failure["what"].splitlines(), failure["output"], f"fix: {failure['fix']}"]
        lines = [line for line in lines if line]
        proven += f"<p class=bad>{'<br>'.join(map(html.escape, lines))}</p>"
    return f"<tr><td>{html.escape(phase)}<td>{changed}<td>{proven}<td>{result['seconds']}"


def link_mbit(folder: Path) -> float:
    """What the newest proof of a bootstrap measured between the nodes, as a link's speed is named: with all that its
    packets carry beside data. 0 where none did."""
    for file in sorted(folder.glob("*-bootstrap.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # somebody has changed it
            nodes = json.loads(file.read_text(encoding="utf-8"))["nodes"].values()
            proofs = [node["phases"].get("proof", {}).get("measured", {}) for node in nodes]
            if rates := [proof["link_mbit"] * proof["percent_of_link"] / 100 for proof in proofs if proof]:
                return float(min(rates) / LINK_EFFICIENCY)
    return 0.0
