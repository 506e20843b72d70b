"""A machine at home that stays on gives the rented one back, if whoever rented it sleeps by then.

give_back_while_asleep.py and the client of the market are sent to a node on standard input, and the key with them.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from console.rent.clore import Clore
from console.rent.give_back_while_asleep import Keeping
from console.rent.lease import Lease

ROOT = Path(__file__).parents[2]
SENT = tuple(f"console.rent.{name}" for name in ("market", "call_within", "clore", "give_back_while_asleep"))
AFTER_S = 30.0
"""How long after the lease's time the keeper's turn comes, which is later than the watcher's."""
EVERY_S = 20.0
LOOK_S = 60.0
"""So long it sleeps at most before its time, as its machine may have slept too; and where there may be nothing left."""
DOUBT_S = 3600.0
"""An order that lives is looked for so long at most where the market denies it, and no longer than it was to live."""
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Kept:
    why: str
    """Why it cannot; empty where it can."""
    outlives: bool = False
    """Also after a restart of that node; for this the key is in a file there."""


def bringing() -> str:
    """A program without the key that has these modules."""
    return "\n".join([
        "import sys, types",
        "def bring(name, text):",
        "    for above in [name.rsplit('.', n)[0] for n in range(name.count('.'), 0, -1)]:",
        "        sys.modules.setdefault(above, types.ModuleType(above)).__path__ = []",
        "    module = sys.modules[name] = types.ModuleType(name)",
        "    exec(text, module.__dict__)",
        *(f"bring({name!r}, {(ROOT / (name.replace('.', '/') + '.py')).read_text()!r})" for name in SENT),
    ])  # fmt: skip


def program(facts: Keeping) -> str:
    """What the node reads; the key is in it, so it is on no command line."""
    brings = bringing()
    return f"{brings}\nfrom console.rent.give_back_while_asleep import on_node\non_node({facts!r}, {brings!r})"


def facts(market: Clore, lease: Lease | None, left_s: float) -> Keeping:
    return {
        "key": market.key,
        "url": market.url,
        "mark": lease.mark if lease else "",
        "order": lease.order if lease else 0,
        "left_s": left_s,
        "after_s": AFTER_S,
        "every_s": EVERY_S,
        "look_s": LOOK_S,
        "doubt_s": min(DOUBT_S, lease.hours * 3600) if lease else 0.0,
    }


def arm(command: list[str], market: Clore, lease: Lease | None, left_s: float = 0.0) -> Kept:
    """Without a lease it only tries the market. `command`: of `python3 -` there."""
    sent = program(facts(market, lease, left_s))
    try:
        done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return Kept(f"it gave no answer within {ANSWER_S:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return Kept((done.stderr.strip().splitlines() or ["it gave no answer"])[-1])
    return Kept(**json.loads(lines[-1]))
