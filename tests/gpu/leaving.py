"""SIGTERM while a kernel spins on the card: saved and gone within seconds. And the warm process beside a card."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.gpu import runs, weights
from tests.gpu.line import Figures, Line, Place, Verdict, furthest, together, told, within

STEP = 4
"""In which the kernel spins."""
SPIN_CYCLES = int(60e9)
"""Half a minute at the clock of a card; it ends by itself."""
LEAVES_WITHIN_S = 5.0
LAYERS_OF_1_GB, HEAVY_R = 10, 256
SMALL_S = 5.0


def spin_in_a_step(device: str, mark: Path) -> Callable[[int], None]:
    def change(rank: int) -> None:
        import threading

        import torch

        from train.engine import loop

        compute = loop.compute

        def spinning(run: Any, mine: list[int], weight: float) -> Any:
            if run.step + 1 == STEP:
                mark.touch()
                if device == "cpu":
                    threading.Event().wait(240)
                else:
                    torch.cuda._sleep(SPIN_CYCLES)
            return compute(run, mine, weight)

        loop.compute = spinning

    return change


def measure_sigterm(place: Place) -> Figures:
    truth = runs.begin_truth(place)
    options, home, mark = runs.options_for(place, save_every=50), place.folder / "run", place.folder / "spins"
    first = runs.Runs(home, options, [place.device], change=spin_in_a_step(place.device, mark))
    first.until(mark.exists)
    time.sleep(0.5)
    os.kill(first.pids[0], signal.SIGTERM)
    began, asked = time.monotonic(), time.time()
    codes = first.wait()
    seconds = time.monotonic() - began
    kept_s = next((event["time"] - asked for event in first.events(0, "stopped")), seconds)
    saved = [event["step"] for event in first.events(0, "checkpoint")]
    last = runs.train(home, options, [place.device])
    starts = [event["step"] for event in last.events(0, "start")]
    found = {"codes": codes, "seconds": round(seconds, 2), "kept_s": round(kept_s, 2), "finished": STEP - 1}
    found |= {"saved": saved, "starts": starts}
    return {**found, "losses": last.losses(), "truth": runs.well(truth).losses()}


def judge_sigterm(values: Figures) -> Verdict:
    saved, code = values["saved"], 128 + signal.SIGTERM
    return together(
        (values["codes"] == [code], f"left with {values['codes'][0]}"),
        (values["seconds"] <= LEAVES_WITHIN_S, f"{values['seconds']} s after SIGTERM, saved after {values['kept_s']}"),
        (saved[-1:] == [values["finished"]], f"saved step {saved}"),
        (values["starts"] == [0, values["finished"]], f"began at steps {values['starts']}"),
        within("losses off the undisturbed run by", furthest(values["losses"], values["truth"]), 1e-4),
    )


def measure_heavy(place: Place) -> Figures:
    from train.cluster.agent_files import TrainerProgress

    model = runs.apart(place, lambda: str(weights.few_layers(place, LAYERS_OF_1_GB)))
    options = runs.options_for(place, model=model, lora_r=HEAVY_R, save_every=100_000, max_steps=100_000)
    run = runs.Runs(place.folder / "run", options, [place.device])
    run.until(lambda: len(run.events(0, "step")) >= STEP)
    os.kill(run.pids[0], signal.SIGTERM)
    began = time.monotonic()
    codes = run.wait()
    seconds = round(time.monotonic() - began, 2)
    trained = run.events(0, "start")[0]["weights"]
    limit_s = round(trained * TrainerProgress.SAVED_BYTES / TrainerProgress.MEMORY, 1)
    saved, last = (run.events(0, kind)[-1]["step"] for kind in ("checkpoint", "step"))
    return {"codes": codes, "seconds": seconds, "weights": trained, "limit_s": limit_s, "saved": saved, "last": last}


def judge_heavy(values: Figures) -> Verdict:
    most_s = max(SMALL_S, values["limit_s"])
    size = f"{values['weights'] / 1e6:.0f} M weights"
    return together(
        (values["codes"] == [128 + signal.SIGTERM], f"left with {values['codes'][0]}"),
        (values["seconds"] <= most_s, f"{size} saved and gone after {values['seconds']} s (its agent gives {most_s})"),
        (values["saved"] == values["last"], f"saved step {values['saved']} of {values['last']}"),
    )


def measure_warm(place: Place) -> Figures:
    """A run as a fork of a process that has read the libraries, and the same run from nothing."""
    from train.cluster.forkserver import ForkServer

    warm = ForkServer(dict(os.environ))
    try:
        warm_words(warm, place, ["-m", "train", "versions", "--json"])  # it has read them
        began = time.perf_counter()
        code = warm_words(warm, place, words(place, "warm"))
        warm_s = time.perf_counter() - began
        opened = open_cards(warm.process.pid)
    finally:
        warm.process.kill()
        warm.process.wait()
    began = time.perf_counter()
    with (place.folder / "cold.txt").open("w") as out:
        limit_s, program = runs.deadline_s(place.device), [sys.executable, *words(place, "cold")]
        cold = subprocess.run(program, stdout=out, stderr=out, check=False, timeout=limit_s)
    cold_s = time.perf_counter() - began
    losses = [runs.losses_of(place.folder / name) for name in ("warm", "cold")]
    found = {"codes": [code, cold.returncode], "warm_s": round(warm_s, 2), "cold_s": round(cold_s, 2)}
    return {**found, "opened": opened, "losses": losses[0], "truth": losses[1]}


def warm_words(warm: Any, place: Place, given: list[str]) -> int:
    with (place.folder / "warm.txt").open("a") as out:
        born = warm.start(given, dict(os.environ), out.fileno())
        return int(born.wait(runs.deadline_s(place.device)))


def words(place: Place, name: str) -> list[str]:
    own = runs.options_for(place, max_steps=4, home=place.folder / name, device="cpu" if not place.on_card else "cuda")
    return ["-m", "train", "run", *runs.flags(own)]


def open_cards(pid: int) -> list[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(file.readlink()))
    return sorted(name for name in found if name.startswith("/dev/nvidia"))


def judge_warm(values: Figures) -> Verdict:
    codes, opened = values["codes"], values["opened"]
    return together(
        told(codes == [0, 0], "both ended well", f"ended with {codes}"),
        told(not opened, "the warm process has opened no card", f"it has {opened}"),
        within("losses off a cold start by", furthest(values["losses"], values["truth"]), 1e-6),
        (values["warm_s"] < values["cold_s"], f"{values['warm_s']} s warm, {values['cold_s']} s cold"),
    )


HEAVY = "SIGTERM where an adapter and its moments take 1 GB (little on a CPU): saved within what agents give it"
LINES = (
    Line("sigterm", "SIGTERM beside a kernel that spins: saved, gone within 5 s", measure_sigterm, judge_sigterm),
    Line("save-heavy", HEAVY, measure_heavy, judge_heavy),
    Line("warm", "a worker forked from the warm process trains as one from nothing", measure_warm, judge_warm),
)
