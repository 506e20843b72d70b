"""Writes the program into the box."""

from __future__ import annotations

import json
from pathlib import Path

from console.infra import Facts
from tests.support.run_files import start, step

PROGRAM = """
import json, pathlib, time
folder, *events = json.loads({events!r})
log = pathlib.Path(folder, "events.jsonl")
log.parent.mkdir(parents=True)
for event in events:
    with log.open("a") as file:
        print(json.dumps(event | {{"time": time.time()}}), file=file)
    time.sleep(0.2)
end = {{"state": "done", "time": time.time(), "reason": "all steps"}}
log.with_name("agent.json").write_text(json.dumps(end))
"""


def files(known: Facts, args: Facts) -> Facts:
    plan = args["plan"]
    home, run, steps = Path(plan["home"]), plan["run"], int(plan["steps"])
    events = [start(0, 0, ["box"], steps) | {"run": run}, *(step(0, n + 1, {"box": 4}) for n in range(steps))]
    home.mkdir(parents=True, exist_ok=True)
    text = json.dumps([f"{home}/logs/runs/{run}", *events])
    (home / "program.py").write_text(PROGRAM.format(events=text))
    return {"changed": True}
