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

from lab import base, faults
from lab import lab as labs
from lab.host import Host
from lab.place import Place
from lab.profile import USER
from tests.bench.page import Figures, bench, row
from tests.support.artifacts import hand_on
from tests.support.cluster import Cluster

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


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = [
        f"| 200 MB at {RATE_MBIT:.0f} Mbit/s, one link's limit {LINK_S:.0f} s | measured | aim |",
        "| --- | --- | --- |",
    ]
    chained, starred = ([run["seconds"] for run in found.get(part, [])] for part in ("chain", "star"))
    if chained:
        lines.append(row("controller → three nodes, from node to node", chained, "{:.1f} s"))
        lines.append(row("… of the link's limit", [each / LINK_S for each in chained], "{:.2f}×", "≤ 1.25×"))
    if starred:
        lines.append(row("one node → two others at once", starred, "{:.1f} s"))
        lines.append(row("… of the link's limit", [each / LINK_S for each in starred], "{:.2f}×"))
    return lines


PARTS = {"chain": chain, "star": star}


@contextlib.contextmanager
def slow_trio() -> Iterator[Cluster]:
    place = Place(name="benchfan")
    try:
        with tempfile.TemporaryDirectory() as folder:
            lab = labs.up(place, "trio", base.default_suite())
            for host in lab.hosts:
                faults.inject(lab, host, "slow-link", {"rate_mbit": RATE_MBIT})
            yield Cluster(lab, Path(folder))
    finally:
        labs.down(place)


def main() -> int:
    return bench(__doc__, NAME, slow_trio(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
