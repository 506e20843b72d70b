"""200 MB to all nodes over links of 100 Mbit/s: from node to node as Motley does it, and from one node to two at once.

make bench PARTS=fan_out
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab import faults
from lab.host import Host
from lab.profile import USER
from tests.bench.page import Figures, Found, bench, row
from tests.support.artifacts import hand_on
from tests.support.bootstrap import person_with_trio
from tests.support.cluster import Cluster
from tests.support.tables import table as table_of

NAME = "fan_out"
RATE_MBIT = 100.0
SIZE = 200_000_000
LINK_S = SIZE * 8 / RATE_MBIT / 1e6
SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, h.ThreadingHTTPServer, port=8000)"
TAKE = "import shutil, sys, urllib.request as u; shutil.copyfileobj(u.urlopen(sys.argv[1]), open(sys.argv[2], 'wb'))"


def chain(cluster: Cluster) -> Figures:
    for host in cluster.hosts:
        host.run("rm", "-rf", f"/home/{USER}/files")
    with tempfile.TemporaryDirectory(dir=cluster.folder) as folder:
        (Path(folder) / "weights.bin").write_bytes(random.Random(time.time()).randbytes(SIZE))
        played = hand_on(cluster, Path(folder))
    if played.rc:
        raise SystemExit(played.stdout)
    told = played.of_task("Hand files from node to node, each compared with its hash")
    return {"seconds": max(result["seconds"] for result in told.values()), "nodes": len(told)}


def star(cluster: Cluster) -> Figures:
    """What copying from one machine to each of the others does: they share its link."""
    head, *others = cluster.hosts
    server = threading.Thread(
        target=head.outcome,
        args=("timeout", "120", "python3", "-c", f"import os; os.chdir('/home/{USER}/files'); {SERVE}"),
    )
    server.start()
    time.sleep(2)
    url = f"http://{head.spec.installed_address}:8000/weights.bin"

    def take(host: Host) -> None:
        host.run("python3", "-c", TAKE, url, "/tmp/weights.bin", timeout_s=110)

    since = time.monotonic()
    takers = [threading.Thread(target=take, args=(host,)) for host in others]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    took_s = time.monotonic() - since
    head.outcome("pkill", "-f", "ThreadingHTTPServer")
    server.join()
    return {"seconds": took_s, "nodes": len(others)}


def table(found: Found) -> list[str]:
    rows = []
    for part, (title, aim) in TITLES.items():
        seconds = [run["seconds"] for run in found[part]]
        rows.append(row(title, seconds, "{:.1f} s"))
        rows.append(row("… of the link's limit", [each / LINK_S for each in seconds], "{:.2f}×", aim))
    return table_of((f"200 MB at {RATE_MBIT:.0f} Mbit/s, one link's limit {LINK_S:.0f} s", "measured", "aim"), rows)


TITLES = {
    "chain": ("controller → three nodes, from node to node", "≤ 1.25×"),
    "star": ("one node → two others at once", ""),
}
PARTS = {"chain": chain, "star": star}


@contextlib.contextmanager
def slow_trio() -> Iterator[Cluster]:
    with person_with_trio("benchfan") as person:
        for host in person.cluster.hosts:
            faults.inject(person.cluster.lab, host, "slow-link", {"rate_mbit": RATE_MBIT})
        yield person.cluster


def main() -> int:
    return bench(__doc__, NAME, slow_trio(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
