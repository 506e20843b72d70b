"""docs/live.png and docs/report.png, what README shows of the two pages: python -m tests.support.page_pictures

The pages are the real ones, in a Chromium (apt install chromium-headless-shell). The run is made up, with figures as
three cards could have them: nobody has measured it, and README says so. Make them again when the look of a page has
changed.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from console.report.page import write_page
from console.report.read_run import read_history
from tests.support import ROOT, pace
from tests.support.browser import Browser, Tab, program
from tests.support.live_run import Board, LiveRun
from tests.support.run_files import gpu, held_out, member, step, write

DOCS = ROOT / "docs"
WIDTH, HEIGHT = 1000, 1000
TOTAL, NOW, LOST, BACK = 600, 420, 180, 240


class Card(NamedTuple):
    name: str
    memory_gb: int
    used_gb: float
    rows_per_s: float
    celsius: int
    watts: int


CARDS = {
    "gpu-master": Card("RTX 3090", 24, 9.1, 3.8, 71, 318),
    "gpu-worker-1": Card("RTX 4070", 12, 8.3, 3.1, 66, 187),
    "gpu-worker-2": Card("RTX 3060", 12, 8.2, 1.4, 63, 158),
}
AWAY = "gpu-worker-1"
ALL, WITHOUT = {"gpu-master": 22, "gpu-worker-1": 18, "gpu-worker-2": 8}, {"gpu-master": 35, "gpu-worker-2": 13}
ROWS_PER_STEP, TOKENS_PER_ROW, EPOCHS, EXCHANGE_S, READ_S = 48, 200, 3, 0.9, 30
ASKED = {"model": "qwen2.5-7b", "dataset": "./my-notes.jsonl", "epochs": EPOCHS, "rows_per_step": ROWS_PER_STEP}
USUAL = {"method": "lora", "lora_r": 16, "learning_rate": 2e-4, "max_seq_length": 512, "seed": 0}
LAUNCH = {
    "run": "my-notes",
    "given": ASKED,
    "all": ASKED | USUAL,
    "predicted": {"step_s": 6.5, "shares": {"gpu-master": 22, "gpu-worker-1": 17.5, "gpu-worker-2": 8.5}},
    "electricity": {"kwh_price": 0.32, "currency": "€", "idle_watts": {}},
    "model": {"name": "qwen2.5-7b", "hub": "Qwen/Qwen2.5-7B-Instruct"},
}
PLAIN = """document.querySelectorAll('code').forEach(
  (code) => { code.textContent = code.textContent.replace(/ --inventory \\S+/, ''); })"""
"""What an owner with the usual inventory sees."""


def shares(number: int) -> dict[str, int]:
    return WITHOUT if LOST <= number < BACK else ALL


def step_s(number: int) -> float:
    return max(rows / CARDS[name].rows_per_s for name, rows in shares(number).items()) + EXCHANGE_S


def after_s(number: int) -> float:
    """When this step ends, from the beginning of the run."""
    return sum(step_s(one) for one in range(1, number + 1))


def smi(card: Card) -> dict[str, str]:
    """As nvidia-smi lists it."""
    return {
        "name": f"NVIDIA GeForce {card.name}",
        "memory.total": str(card.memory_gb * 1024),
        "memory.used": str(card.used_gb * 1024),
        "temperature.gpu": str(card.celsius),
        "power.draw": str(card.watts),
    }


def reports(run: LiveRun) -> None:
    """Each machine's cards as its agent reports them, and what was launched, on the nodes and on this computer."""
    for name, card in CARDS.items():
        agent = {"state": "training", "time": time.time(), "run": run.run, "epoch": 3, "peers": {}, "node": name}
        run.log(name, "agent.json").write_text(json.dumps(agent | {"gpus": [smi(card)]}))
        run.log(name, "launch.json").write_text(json.dumps(LAUNCH))
    kept = run.folder / "state/runs/my-notes.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(LAUNCH))


def trained(number: int, at: float, random: Random) -> dict[str, Any]:
    """A step's event."""
    there = shares(number)
    event = step(at, number, there, 0.9 + 1.3 * math.exp(-number / 90) + random.gauss(0, 0.05))
    for name, rows in there.items():
        computed = random.gauss(1, 0.02) * rows / CARDS[name].rows_per_s
        event["nodes"][name] |= {
            "gpu_gb": CARDS[name].used_gb - 0.4,
            "compute_s": computed,
            "wait_s": max(0.0, step_s(number) - EXCHANGE_S - computed),
            "tokens_per_s": rows * TOKENS_PER_ROW / computed,
        }
    tokens = ROWS_PER_STEP * TOKENS_PER_ROW
    rate = {"lr": 2e-4 * (1 + math.cos(math.pi * number / TOTAL)) / 2}
    return event | {"tokens": tokens, "targets": tokens // 3, "step_s": step_s(number), "sync_s": EXCHANGE_S} | rate


def trains(run: LiveRun, until: int) -> None:
    """To this step, with a machine that is lost and comes back."""
    random = Random(run.step)
    for number in range(run.step + 1, until + 1):
        at = run.began + after_s(number)
        if number in (LOST, BACK):
            kind, why = ("lost", "silent") if number == LOST else ("joined", f"{AWAY} is back")
            run.write("members.jsonl", member(kind, at, "gpu-master", [AWAY], why) | {"step": number - 1})
        events = [trained(number, at, random)]
        if number % 60 == 0:
            events.append(held_out(at, number, 0.95 + 1.3 * math.exp(-number / 90)))
        run.write("events.jsonl", *events)
    run.step = until


def reads(run: LiveRun) -> None:
    """The cards' readings of the whole run, without the machine that was away."""
    gone, back, random = run.began + after_s(LOST - 1), run.began + after_s(BACK), Random(1)
    for name, card in CARDS.items():
        times = [run.began + at for at in range(0, round(after_s(TOTAL)), READ_S)]
        there = [at for at in times if name != AWAY or not gone < at < back]
        around = random.gauss
        readings = [gpu(at, name, around(card.watts, 4), around(card.celsius, 1)) for at in there]
        write(run.log(name, "gpu.jsonl").parent, "gpu.jsonl", readings)


def photographed(tab: Tab, file: Path) -> None:
    pace.until(lambda: tab.value("document.querySelectorAll('svg').length > 0"), 30, "no chart", every_s=0.1)
    tab.call("Emulation.setScrollbarsHidden", hidden=True)
    tab.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    tab.value(PLAIN)
    time.sleep(1)  # what is drawn in pieces
    file.write_bytes(base64.b64decode(tab.call("Page.captureScreenshot")["data"]))


def main() -> int:
    found = program()
    if not found:
        print("no Chromium here\n  fix: sudo apt install chromium-headless-shell", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = {"rows_per_step": ROWS_PER_STEP, "rows": TOTAL * ROWS_PER_STEP // EPOCHS, "decisions": {"wire": "bf16"}}
        made = LiveRun(folder / "live", "my-notes", TOTAL, began=time.time() - after_s(NOW), **known)
        with made as run, Browser(found, folder / "profile") as browser:
            reports(run)
            trains(run, NOW)
            with closing(Board(run)) as board:
                photographed(browser.tab(board.address, width=WIDTH), DOCS / "live.png")
            trains(run, TOTAL)
            reads(run)
            end = {"event": "done", "time": run.began + after_s(TOTAL), "step": TOTAL, "reason": "all steps are done"}
            run.write("events.jsonl", end)
            (run.folder / "adapter").mkdir()
            page = write_page(read_history(run.folder), folder / "report.html")
            photographed(browser.tab(page.as_uri(), width=WIDTH), DOCS / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
