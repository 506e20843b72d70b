"""`./motley demo --rent fake`: a whole evening with the market of the lab. A machine is rented, the answer to the order
is lost on purpose, a model is trained on it, brought home, and the machine is given back; then the market's own bill is
compared.

What is typed is what a person would type. Nothing leaves this machine, and no money is moved. It fails where anything
was not as promised, and leaves nothing running.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any

from lab import base, demo, needs, rented
from lab import lab as labs
from lab.demo_courses import FAST, STATE
from lab.demo_sites import ROOT
from lab.demo_summary import require, show
from lab.lab import Lab
from lab.market import KEY
from lab.place import Place
from lab.profile import CLUSTER_HOME
from lab.shell import LabError, run

RUN, HOURS, MAX = "demo-rent", 1.0, 0.50
INVENTORY = STATE / "rented"
ON_LAB_HOSTS = f"""
# The lab's hosts have no graphics card, and the environment already.
motley_home: {CLUSTER_HOME}
motley_python_env_sets: [node-cpu]
motley_workspace_disk_gb: 1
motley_render_environment: {{OMP_NUM_THREADS: 1}}
"""
TRAINED = {"model": "tiny", "dataset": "stdlib-qa", "run": RUN, "steps": "20"}
SET = ["rows_per_step=16", "max_seq_length=64", "eval_every=10", "eval_rows=8", "save_every=10"]


def main() -> int:
    if missing := needs.what_is_missing():
        raise LabError(
            "\n".join([*missing, "the market's machines are the lab's: sudo ./motley demo --rent fake"]), code=2
        )
    place = Place(name=f"rent{os.environ.get('MOTLEY_LAB', '')}"[:16])
    return demo.played(lambda: evening(place), "./motley demo --rent fake")


def evening(place: Place) -> int:
    began = time.monotonic()
    demo.enough_disk(FAST)
    shutil.rmtree(STATE, ignore_errors=True)
    shutil.rmtree(ROOT / "results" / RUN, ignore_errors=True)
    STATE.mkdir(parents=True)
    print("motley demo · a rented machine, with a market that is simulated on this one", flush=True)
    print("  No money is moved and nothing leaves this machine. What is typed stands behind $.", flush=True)
    try:
        demo.end_offspring()
        labs.clear(place)
        with demo.stage("market", "opening a market with two machines to let") as done:
            lab = labs.up(place, rented.PROFILE, base.default_suite(), ["train"], [rented.SHAPE])
            market = rented.open_market(lab)
            done.append("two machines of strangers to let, which say RTX 4090 and have none")
        known = {"MOTLEY_LAB": place.name, "MOTLEY_MARKET": market, "MOTLEY_RENTED": str(STATE / "leases")}
        play(lab, dict(os.environ) | known | {"CLORE_API_KEY": KEY, "MOTLEY_CALLED_AS": "./motley"}, market)
        told(lab, market, time.monotonic() - began)
    finally:
        demo.leave_nothing(lambda: labs.down(place))
    return 0


def play(lab: Lab, environment: dict[str, str], market: str) -> None:
    shutil.copytree(ROOT / "inventory/rented", INVENTORY)
    variables = INVENTORY / "group_vars/cluster.yml"
    variables.write_text(variables.read_text() + ON_LAB_HOSTS)
    where = ["--inventory", str(INVENTORY)]

    def types(verb: str, *words: str, shown: str) -> None:
        print(f"\n$ ./motley {verb} {shown}".rstrip(), flush=True)
        command = [sys.executable, "-m", "console", verb, *words]
        if demo.run_apart(["ip", "netns", "exec", lab.place.controller, *command], environment=environment):
            raise LabError(f"{verb} failed; see above")

    asked(lab, market, "fault", verb="create_order", fault="lost")
    demo.say("the demo now loses the answer to the order: it is made, and nobody is told")
    wish = ["--gpu", "RTX 4090", "--hours", f"{HOURS:g}", "--max", f"{MAX:.2f}", "--model", "tiny"]
    types("rent", *wish, "--yes", *where, shown='--gpu "RTX 4090" --hours 1 --max 0.50 --model tiny')
    options = [word for name, value in TRAINED.items() for word in (f"--{name}", value)]
    settings = [f"--set={setting}" for setting in SET]
    shown = " ".join(["--nodes rented-1000", *options])
    types("launch", "--nodes", "rented-1000", *options, *settings, *where, shown=shown)
    deadline = time.monotonic() + 120  # where the launch left it to the watcher
    while asked(lab, market, "bill")["orders"][0]["status"] == "running" and time.monotonic() < deadline:
        time.sleep(1)
    types("rented", shown="")


def asked(lab: Lab, market: str, name: str, **body: Any) -> dict[str, Any]:
    """The market's side, which no renter sees."""
    ask = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], sys.argv[2].encode() or None).read().decode())"
    words = [f"{market}/{name}", json.dumps(body) if body else ""]
    return dict(json.loads(run("ip", "netns", "exec", lab.place.controller, sys.executable, "-c", ask, *words)))


def told(lab: Lab, market: str, seconds: float) -> None:
    """What the market says of it, not the renter."""
    bill = asked(lab, market, "bill")
    orders = bill["orders"]
    require(len(orders) == 1 and bill["asked"].count("create_order") == 1, "there was more than one order")
    (order,) = orders
    require(order["status"] == "terminated", "the machine was not given back")
    require(order["usd"] <= HOURS * MAX * 1.05 + 0.01, f"the bill of {order['usd']:.2f} $ is over its bound")
    adapter = ROOT / "results" / RUN / "adapter/adapter_model.safetensors"
    require(adapter.is_file(), "there is no adapter at home")
    leases = list((STATE / "leases").glob("motley-*.json"))
    require(not leases, "a lease is left")
    print()
    show("done", f"rented, trained on, brought home and given back in {seconds:.0f} s")
    show("order", "one, although its answer was lost: it was found by its mark and not sent again")
    show("bill", f"{order['usd']:.3f} $ by the market's own books; {HOURS * MAX:.2f} $ were agreed to at most")
    show("adapter", f"{adapter.parent.relative_to(ROOT)}")
    show("next", "docs/renting.md   (with an account at a market: export CLORE_API_KEY=…)")
