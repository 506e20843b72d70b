"""`make bench-faults`: losses in the lab again and again, with recovery times; `make bench-load`: an hour of full load.

    python -m tests.bench.faults [load] [--repeats 20] [--load-minutes 60]

The three worst: the head loses power, a worker hangs (silent, yet its kernel answers), the cable of the head is pulled.
Ends with 1 if anything hung, took longer than promised, or if the losses are not those of one machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from lab import faults
from tests.bench.page import Figures, Found, keep, kept, put, spread
from tests.support.again import begun_again_s
from tests.support.tables import table as table_of
from tests.support.training import Training, training_on

NAME = "faults"
WORST = [("power-cut", "gpu-master"), ("freeze", "gpu-worker-1"), ("cable-pull", "gpu-master")]
SECONDS = {
    "again_s": "training again after",
    "known_s": "of that, once it is known",
    "back_s": "all again after its sshd answers",
    "joined_s": "of that, once it is taken in",
}
SAVE_EVERY = 10
HANG_S = 120
STAYS_S = 22
"""Who is lost again within 20 s of a return waits, longer each time, before the others take it in."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--load-minutes", type=float, default=60)
    parser.add_argument("what", nargs="?", choices=["losses", "load"], default="losses")
    args = parser.parse_args()
    with training_on(f"bench{os.getpid()}") as training:
        if args.what == "losses":
            good = repeat_losses(training, args.repeats)
        else:
            good = hold_under_load(training, args.load_minutes)
    return 0 if good else 1


def repeat_losses(training: Training, repeats: int) -> bool:
    began = time.time()
    training.launch("bench", max_steps=1_000_000)
    training.together(*training.names, since=began, within_s=HANG_S)
    found: list[Figures] = []
    back_at: dict[str, float] = {}
    for number in range(repeats):
        for fault, victim in WORST:
            time.sleep(max(0.0, back_at.get(victim, 0.0) + STAYS_S - time.time()))
            one = one_fault(training, fault, victim)
            back_at[victim] = time.time()
            found.append({"loss": f"{fault} of {victim}"} | one)
            print(f"{number + 1}  {found[-1]}", flush=True)
    training.stop()
    proof = training.proof()
    whole = bool(proof["whole"] and proof["rows"])
    keep(NAME, "storm", {"losses": found, "steps": proof["steps"], "whole": whole, "error": proof["error"]})
    put(NAME, table(kept(NAME)))
    return whole and proof["error"] < 1e-3 and max(one["repeated"] for one in found) <= SAVE_EVERY


def table(found: Found) -> list[str]:
    """Of the last ones."""
    storm = found["storm"][-1]
    rows = []
    for what in dict.fromkeys(one["loss"] for one in storm["losses"]):
        losses = [one for one in storm["losses"] if one["loss"] == what]
        seconds = (spread([one[key] for one in losses], "{:.1f} s", "losses") for key in SECONDS)
        rows.append((what, *seconds, max(one["repeated"] for one in losses)))
    heads = ("loss", *SECONDS.values(), "most steps repeated")
    whole = "no row lost or trained twice" if storm["whole"] else "ROWS WERE LOST OR TRAINED TWICE"
    against = f"largest relative error of the first 500 against one process {storm['error']:.1e}"
    lines = [*table_of(heads, rows), "", f"{storm['steps']} steps, {whole}, {against}."]
    for run in found.get("load", [])[-1:]:
        load = f"{run['minutes']:g} minutes at full load ({run['loops']} busy loops): {run['steps']} steps"
        lines += ["", f"{load}, {run['false']} nodes falsely taken for lost."]
    return lines


def one_fault(training: Training, fault: str, victim: str) -> Figures:
    """Seconds until the others train, and from its sshd's answer until all do."""
    host = training.host(victim)
    rest = [name for name in training.names if name != victim]
    began = time.time()
    faults.inject(training.lab, host, fault)
    lost_s = training.together(*rest, since=began, within_s=HANG_S)
    repeated, known_s = training.repeated(rest[0], began), begun_again_s(training, rest[0], began)
    faults.fix(training.lab, host, fault)
    host.wait_until_up(60)
    returned = time.time()
    back_s = training.together(*training.names, since=returned, within_s=HANG_S)
    joined_s = begun_again_s(training, rest[0], returned)
    times = {"again_s": lost_s, "known_s": known_s, "back_s": back_s, "joined_s": joined_s}
    return {name: round(seconds, 2) for name, seconds in times.items()} | {"repeated": repeated}


def hold_under_load(training: Training, minutes: float) -> bool:
    """Two busy loops a core and one in each host, while they train: nobody may be taken for lost."""
    began = time.time()
    training.launch("load", max_steps=10_000_000)
    training.together(*training.names, since=began, within_s=HANG_S)
    count = 2 * (os.cpu_count() or 1)
    busy = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(training.host(name).inside("sh", "-c", "while :; do :; done")) for name in training.names]
    loops += [subprocess.Popen(busy) for _ in range(count)]
    since = time.time()
    try:
        while time.time() - since < 60 * minutes:
            time.sleep(5)
        steps = training.last_step(training.names[0])["step"]
    finally:
        for loop in loops:
            loop.kill()
        for name in training.names:
            training.host(name).outcome("pkill", "-f", "while :; do :; done")
    kinds = ("lost", "stalled", "woke", "waiting", "failed")
    false = [event for event in training.diary() if event["time"] > since and event["event"] in kinds]
    training.stop()
    keep(NAME, "load", {"minutes": minutes, "loops": len(loops), "steps": steps, "false": len(false)})
    put(NAME, table(kept(NAME)))
    for event in false:
        print(f"  {event['node']} {event['event']}: {event['reason']}")
    return not false


if __name__ == "__main__":
    sys.exit(main())
