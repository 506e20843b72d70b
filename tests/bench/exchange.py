"""The exchange of LoRA gradients against what the link allows, and how much of it hides behind the backward pass.

    make bench PARTS=exchange
    python -m tests.bench.exchange 1000 100 --repeats 1

The limit: in a ring each host sends 2 (n - 1) / n of the gradients' bytes, at the link's nominal speed. Three hosts
without CPU quotas.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from itertools import count as counting
from typing import Any

from lab.lab import Lab
from tests.bench.page import Figures, Found, bench
from tests.support import torchrun
from tests.support.tables import table as table_of
from tests.support.torchrun import Training
from train.plan.speed.step_time import ring_bytes

NAME = "exchange"
LINKS_MBIT = (1000, 100, 20)
SIZES_MB = (0.8, 16, 160)
WIRES = ("fp32", "bf16")
RANKS = (21, 411)
"""Of LoRA on `tiny`: 0.8 and 16 MB of gradients."""
LONG_S = 10.0
"""An exchange that takes longer is measured once."""
HOSTS = 3
COUNTER = counting()


def limit_s(mb: float, wire: str, link_mbit: float) -> float:
    return ring_bytes(mb * (0.5 if wire == "bf16" else 1), HOSTS) * 8 / link_mbit


def answer(lab: Lab, words: str) -> list[dict[str, Any]]:
    run = Training(f"exchange{next(COUNTER)}", lab.hosts, f"-m train bench {words} --timeout-s 400 --json".split())
    run.end()
    said = (run.folder / lab.hosts[0].name).read_text()
    return list(json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))["measured"])


def measure(lab: Lab, link_mbit: int) -> Figures:
    torchrun.links(lab.hosts, link_mbit)
    exchanged = []
    for wire in WIRES:
        for repeats in (3, 1):
            some = [mb for mb in SIZES_MB if (limit_s(mb, wire, link_mbit) > LONG_S) == (repeats == 1)]
            if some:
                sizes = f"--sizes-mb {','.join(map(str, some))}"
                rows = answer(lab, f"allreduce {sizes} --wire {wire} --repeats {repeats}")
                exchanged += [{"mb": row["mb"], "wire": wire, "seconds": row["seconds"]} for row in rows]
    hidden = [row for rank in RANKS for row in answer(lab, f"sync --model tiny --lora-r {rank} --repeats 2")]
    return {"exchanged": exchanged, "steps": hidden}


def table(found: Found) -> list[str]:
    return [*exchange_table(found), "", *hidden_table(found)]


def exchange_table(found: Found) -> list[str]:
    rows = []
    for link in sorted(found, key=int, reverse=True):
        runs = [run["exchanged"] for run in found[link]]
        for at, first in enumerate(runs[0]):
            least = limit_s(first["mb"], first["wire"], int(link))
            took = statistics.median(run[at]["seconds"] for run in runs)
            what = (f"{link} Mbit/s", f"{first['mb']:g} MB", first["wire"])
            rows.append((*what, f"{least:.3g} s", f"{took:.3g} s", f"{took / least:.2f}×"))
    return table_of(("link", "gradients", "wire", "limit", "took", "over the limit"), rows)


def hidden_table(found: Found) -> list[str]:
    """`ddp` sends while the backward pass runs, `flat` behind it: what of flat's exchange ddp does not wait for."""
    rows = []
    for link in sorted(found, key=int, reverse=True):
        runs = [run["steps"] for run in found[link]]
        for at, first in enumerate(runs[0]):
            if first["sync"] != "flat":
                continue
            flat = [run[at] for run in runs]
            ddp = [next(r for r in run[at:] if (r["sync"], r["wire"]) == ("ddp", first["wire"])) for run in runs]
            behind, waits = (statistics.median(row["blocked_s"] for row in each) for each in (flat, ddp))
            computes = statistics.median(row["step_s"] - row["blocked_s"] for row in flat)
            what = (f"{link} Mbit/s", f"{first['gradient_mb']:.1f} MB", first["wire"])
            hidden = f"{max(0.0, 1 - waits / behind):.0%}"
            rows.append((*what, f"{computes:.2f} s", f"{behind:.3f} s", f"{waits:.3f} s", hidden))
    exchange = ("a step computes", "flat exchanges behind it", "ddp waits behind it", "hidden")
    return table_of(("link", "gradients", "wire", *exchange), rows)


PARTS = {str(link): functools.partial(measure, link_mbit=link) for link in LINKS_MBIT}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, torchrun.lab_for_training("benchexchange"), PARTS, table))
