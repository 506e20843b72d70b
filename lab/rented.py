"""Lab hosts as the machines of the lab's market: fresh for each order, gone when it ends.

python -m lab.rented order|end '{"machine": "server-6", "ssh_key": …}'     (what lab/market.py calls)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from lab import lab as labs
from lab import market, place, services
from lab.lab import Lab
from lab.profile import CLUSTER_HOME
from lab.shapes.rented import SSH_PORT
from lab.shell import outcome

PORT = 8600
PROFILE, SHAPE = "rented", "rented"


def open_market(lab: Lab) -> str:
    """Opens the market; returns its address. It lets the lab's hosts called server-…; none runs before its order."""
    let = [host for host in lab.hosts if host.name.startswith("server-")]
    offers = [
        market.server(int(host.name.rpartition("-")[2]))
        | {"machine": host.name, "host": host.spec.installed_address, "port": SSH_PORT}
        for host in let
    ]
    poor = [one for one in market.usual() if one["id"] not in {offer["id"] for offer in offers}]
    servers = lab.place.root / "market.json"
    servers.write_text(json.dumps([*offers, *poor]))
    labs.each(let, lambda host: host.power_cut())
    hook = f"{sys.executable} -m lab.rented"
    words = ["-m", "lab.market", lab.profile.controller, PORT, "--servers", servers]
    hooks = ["--on-order", f"{hook} order", "--on-end", f"{hook} end"]
    environment = [f"MOTLEY_LAB={lab.place.name}", f"PYTHONPATH={Path(__file__).parents[1]}"]
    command = ["env", *environment, sys.executable, *map(str, words), *hooks]
    services.start(lab.place, "market", lab.place.controller, command, starts_hosts=True)
    address = f"http://{lab.profile.controller}:{PORT}/v1"
    ask = f"import urllib.request as market; market.urlopen('{address}/marketplace', timeout=5)"
    known = ["ip", "netns", "exec", lab.place.controller, sys.executable, "-c", ask]
    labs.wait_until(lambda: outcome(*known).returncode == 0, "the lab's market does not answer")
    return address


def main(what: str, order: dict[str, Any]) -> int:
    lab = labs.current(place.chosen())
    if not order["machine"]:
        return 0
    host = lab.host(order["machine"])
    if what == "end":
        host.power_cut()
        return 0
    labs.reset(lab, [host.name])
    folder = host.disk.root / "root/.ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    if (home := host.disk.root / CLUSTER_HOME.lstrip("/")).exists():  # a layer has it, for the usual login user
        os.chown(home, 0, 0)
    (folder / "authorized_keys").write_text(order["ssh_key"] + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
