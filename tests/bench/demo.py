"""Where the seconds of `./motley demo` go: as root in the lab, its fast form, in folders, and by preferences.

    make bench PARTS=demo
    python -m tests.bench.demo fast --repeats 1

Type `./motley demo` once before, or the downloads of a first time are measured too.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import time
from contextlib import nullcontext

from tests.bench.page import Figures, bench, spread
from tests.support.cluster import REPOSITORY
from train.runlog.paths import EVENTS, NODES
from train.runlog.tail import read

NAME = "demo"
WORDS = {"lab": [], "fast": ["--fast"], "folders": ["--folders"], "preference": ["--recipe", "preference"]}
TITLES = {
    "lab": "as root, in the lab", "fast": "with `--fast`", "folders": "in folders, without root",
    "preference": "by preferences, in the lab",
}  # fmt: skip
AIMS = {"lab": "≤ 4 min", "fast": "≤ 2 min", "folders": "", "preference": "≤ 4 min"}
RESULTS = REPOSITORY / "results/demo" / NODES


def measure(_: None, part: str) -> Figures:
    began = time.time()
    ends: dict[str, float] = {}
    command = [sys.executable, "-u", "-m", "console", "demo", *WORDS[part]]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.match(r"(?:  |⚡ the demo now )(\w+)", line):
                ends.setdefault(found[1], time.time())
    if process.returncode:
        raise SystemExit(f"the demo failed:\n{''.join(said)}")
    ratio = re.search(r"([\d.]+) times as fast", "".join(said))
    seconds = parts(began, ends, time.time())
    return {"seconds": seconds, "balanced": float(ratio[1]) if ratio else None}


def parts(began: float, ends: dict[str, float], over: float) -> dict[str, float]:
    """Of its lines, each of which is printed when its stage is over, and of the steps of the longest event log."""
    log = max((read(file) for file in RESULTS.glob(f"*/{EVENTS}")), key=len)
    steps = [(float(event["time"]), len(event["nodes"])) for event in log if event["event"] == "step"]
    two = next(at for at, nodes in steps if nodes == 2)
    cut = max(at for at, nodes in steps if nodes == 3 and at < two)
    back = next(at for at, nodes in steps if nodes == 3 and at > two)
    again = ends["starts"]
    marks = {
        "programs and model, which are there": ends["tools"],
        "three machines": ends["machines"],
        "bootstrap, with its proof": ends["bootstrap"],
        "launch, to the first step": steps[0][0],
        "three train": cut,
        "one loses power, until two train": two,
        "two train, until the third is started": again,
        "… until three train": back,
        "three train to the end": steps[-1][0],
        "end of the run, questions and answers": ends.get("answers", steps[-1][0]),
        "results, report, what was proven": over,
    }
    times = [began, *marks.values()]
    return {name: round(end - start, 1) for name, start, end in zip(marks, times, times[1:], strict=False)}


def table(found: dict[str, list[Figures]]) -> list[str]:
    known = [part for part in WORDS if part in found]
    lines = [f"| seconds | {' | '.join(TITLES[part] for part in known)} |", f"| --- |{' --- |' * len(known)}"]
    for name in found[known[0]][0]["seconds"]:
        cells = [spread([run["seconds"][name] for run in found[part]], "{:.0f}") for part in known]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    whole = [spread([sum(run["seconds"].values()) for run in found[part]], "{:.0f}") for part in known]
    lines.append(f"| all in all | {' | '.join(whole)} |")
    lines.append(f"| aim | {' | '.join(AIMS[part] for part in known)} |")
    ratios = [[run["balanced"] for run in found[part] if run["balanced"]] for part in known]
    cells = [spread(some, "{:.1f}×") if some else "all equally fast" for some in ratios]
    return [*lines, f"| with shares, over its own even first steps | {' | '.join(cells)} |"]


PARTS = {part: functools.partial(measure, part=part) for part in WORDS}


def main() -> int:
    return bench(__doc__, NAME, nullcontext(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
