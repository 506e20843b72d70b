"""docs/live.png and docs/report.png, what README shows of the two pages: python -m tests.support.page_pictures

The run is made up, as tests have it; the pages are the real ones, in a Chromium (apt install chromium-headless-shell).
Make them again when the look of a page has changed.
"""

from __future__ import annotations

import base64
import math
import shutil
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

from console.report.history import read_history
from console.report.page import write_page
from tests.support import pace
from tests.support.browser import Browser, Tab
from tests.support.live_run import ROOT, Board, LiveRun
from tests.support.run_files import held_out, member, step

DOCS = ROOT / "docs"
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1000, 1000
TOTAL, NOW, LOST, BACK = 600, 420, 180, 240
SPEEDS = {"gpu-master": 5.0, "gpu-worker-1": 2.15, "gpu-worker-2": 1.43}
AWAY = "gpu-worker-1"
ALL, WITHOUT = {"gpu-master": 14, "gpu-worker-1": 6, "gpu-worker-2": 4}, {"gpu-master": 19, "gpu-worker-2": 5}
ROWS_PER_STEP, EPOCHS, EXCHANGE_S = 24, 3, 0.1
PLAIN = """document.querySelectorAll('code').forEach(
  (code) => { code.textContent = code.textContent.replace(/ --inventory \\S+/, ''); })"""
"""What an owner with the usual inventory sees."""


def shares(number: int) -> dict[str, int]:
    return WITHOUT if LOST <= number < BACK else ALL


def step_s(number: int) -> float:
    return max(rows / SPEEDS[name] for name, rows in shares(number).items()) + EXCHANGE_S


def after_s(number: int) -> float:
    """When this step ends, from the beginning of the run."""
    return sum(step_s(one) for one in range(1, number + 1))


def trains(run: LiveRun, until: int) -> None:
    """To this step, with a machine that is lost and comes back; no card, as in the lab."""
    random = Random(run.step)
    for number in range(run.step + 1, until + 1):
        at, around = run.began + after_s(number), random.gauss(1, 0.02)
        if number in (LOST, BACK):
            kind, why = ("lost", "silent") if number == LOST else ("joined", f"{AWAY} is back")
            run.write("members.jsonl", member(kind, at, "gpu-master", [AWAY], why) | {"step": number - 1})
        there = shares(number)
        trained = step(at, number, there, 1.1 + 2.2 * math.exp(-number / 90) + random.gauss(0, 0.08), gpu_gb=0.0)
        for name, rows in there.items():
            computed = around * rows / SPEEDS[name]
            trained["nodes"][name] |= {
                "compute_s": computed,
                "wait_s": max(0.0, step_s(number) - EXCHANGE_S / 2 - computed),
            }
        events = [trained | {"step_s": step_s(number)}]
        if number % 60 == 0:
            events.append(held_out(at, number, 1.2 + 2.2 * math.exp(-number / 90)))
        run.write("events.jsonl", *events)
    run.step = until


def photographed(tab: Tab, file: Path) -> None:
    pace.until(lambda: tab.value("document.querySelectorAll('svg').length > 0"), 30, "no chart", every_s=0.1)
    tab.call("Emulation.setScrollbarsHidden", hidden=True)
    tab.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    tab.value(PLAIN)
    time.sleep(1)  # what is drawn in pieces
    file.write_bytes(base64.b64decode(tab.call("Page.captureScreenshot")["data"]))


def main() -> int:
    program = next(filter(None, map(shutil.which, PROGRAMS)), "")
    if not program:
        print("no Chromium here\n  fix: sudo apt install chromium-headless-shell", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profile").mkdir()
        known = {"rows_per_step": ROWS_PER_STEP, "rows": TOTAL * ROWS_PER_STEP // EPOCHS}
        made = LiveRun(folder / "live", "my-notes", TOTAL, began=time.time() - after_s(NOW), **known)
        with made as run, Browser(program, folder / "profile") as browser:
            run.says("training", gpus=[])
            trains(run, NOW)
            with closing(Board(run)) as board:
                photographed(browser.tab(board.address, width=WIDTH), DOCS / "live.png")
            trains(run, TOTAL)
            end = {"event": "done", "time": run.began + after_s(TOTAL), "step": TOTAL, "reason": "all steps are done"}
            run.write("events.jsonl", end)
            (run.folder / "adapter").mkdir()
            page = write_page(read_history(run.folder), folder / "report.html")
            photographed(browser.tab(page.as_uri(), width=WIDTH), DOCS / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
