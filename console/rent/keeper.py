"""A machine at home that stays on gives the rented one back, if whoever rented it sleeps by then.

This module and the client of the market are sent to a node on standard input; the key comes with them, stays in the
memory of one process there, and is on no disk. A restart of that node ends it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from console.rent.clore import Clore
from console.rent.lease import Lease

ROOT = Path(__file__).parents[2]
SENT = ("console.rent.market", "console.rent.clore", "console.rent.keeper_on_node")
AFTER_S = 30.0
"""Its turn comes after the watcher's."""
EVERY_S = 20.0
ANSWER_S = 60.0


def program(facts: dict[str, Any]) -> str:
    """What the node reads; the key is in it, so it is on no command line."""
    bring = [
        "import sys, types",
        "def bring(name, text):",
        "    for above in [name.rsplit('.', n)[0] for n in range(name.count('.'), 0, -1)]:",
        "        sys.modules.setdefault(above, types.ModuleType(above)).__path__ = []",
        "    module = sys.modules[name] = types.ModuleType(name)",
        "    exec(text, module.__dict__)",
        *(f"bring({name!r}, {(ROOT / (name.replace('.', '/') + '.py')).read_text()!r})" for name in SENT),
    ]
    return "\n".join([*bring, "from console.rent.keeper_on_node import on_node", f"on_node({facts!r})"])


def arm(command: list[str], market: Clore, lease: Lease | None, left_s: float = 0.0) -> str:
    """Why it cannot; empty where it can. Without a lease it only tries the market. `command`: of `python3 -` there."""
    facts: dict[str, Any] = {
        "key": market.key,
        "url": market.url,
        "mark": lease.mark if lease else "",
        "left_s": left_s,
    }
    facts |= {"order": lease.order if lease else 0, "after_s": AFTER_S, "every_s": EVERY_S}
    try:
        done = subprocess.run(
            command, input=program(facts), capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {ANSWER_S:.0f} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["it gave no answer"])[-1]
    return str(json.loads(lines[-1])["why"])
