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

from lab import base, faults
from lab import lab as labs
from lab.place import Place
from tests.bench.page import put, spread
from tests.support.training import Training

WORST = [("power-cut", "gpu-master"), ("freeze", "gpu-worker-1"), ("cable-pull", "gpu-master")]
SAVE_EVERY = 10
HANG_S = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--load-minutes", type=float, default=60)
    parser.add_argument("what", nargs="?", choices=["losses", "load"], default="losses")
    args = parser.parse_args()
    place = Place(name=f"bench{os.getpid()}")
    try:
        training = Training(labs.up(place, "trio", base.default_suite(), ["train"]))
        good = (
            repeat_losses(training, args.repeats)
            if args.what == "losses"
            else hold_under_load(training, args.load_minutes)
        )
        return 0 if good else 1
    finally:
        labs.down(place)


def repeat_losses(training: Training, repeats: int) -> bool:
    began = time.time()
    training.launch("bench", max_steps=1_000_000)
    training.together(*training.names, since=began, within_s=HANG_S)
    lines = ["| loss | training again after | all again after its sshd answers | most steps repeated |"]
    lines.append("| --- | --- | --- | --- |")
    worst_repeated = 0
    for fault, victim in WORST:
        lost: list[float] = []
        back: list[float] = []
        repeated: list[int] = []
        for _ in range(repeats):
            one = one_fault(training, fault, victim)
            lost.append(one[0])
            back.append(one[1])
            repeated.append(one[2])
        told = f"{spread(lost, '{:.1f} s')} | {spread(back, '{:.1f} s')}"
        lines.append(f"| {fault} of {victim} | {told} | {max(repeated)} |")
        print(lines[-1], flush=True)
        worst_repeated = max(worst_repeated, *repeated)
    training.stop()
    proof = training.proof()
    whole = "no row lost or trained twice" if proof["whole"] and proof["rows"] else "ROWS WERE LOST OR TRAINED TWICE"
    against = f"largest relative error of the first 500 against one process {proof['error']:.1e}"
    put("faults", [*lines, "", f"{proof['steps']} steps, {whole}, {against}."])
    return bool(proof["whole"] and proof["rows"] and proof["error"] < 1e-3 and worst_repeated <= SAVE_EVERY)


def one_fault(training: Training, fault: str, victim: str) -> tuple[float, float, int]:
    host = training.host(victim)
    rest = [name for name in training.names if name != victim]
    began = time.time()
    faults.inject(training.lab, host, fault)
    lost_s = training.together(*rest, since=began, within_s=HANG_S)
    repeated = training.repeated(rest[0], began)
    faults.mend(training.lab, host, fault)
    host.wait_until_up(60)
    returned = time.time()
    back_s = training.together(*training.names, since=returned, within_s=HANG_S)
    time.sleep(1)
    return lost_s, back_s, repeated


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
    print(
        f"{minutes:g} minutes at full load ({len(loops)} busy loops): {steps} steps, {len(false)} false losses",
        flush=True,
    )
    for event in false:
        print(f"  {event['node']} {event['event']}: {event['reason']}")
    return not false


if __name__ == "__main__":
    sys.exit(main())
