"""Where the seconds of `./motley demo` go: as root in the lab, its fast form, and in folders.

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

from tests.bench.page import Figures, Found, bench, spread
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of
from train.runlog.paths import EVENTS, NODES
from train.runlog.tail import read

NAME = "demo"
WORDS = {"lab": [], "fast": ["--fast"], "folders": ["--folders"]}
TITLES = {"lab": "as root, in the lab", "fast": "with `--fast`", "folders": "in folders, without root"}
AIMS = {"lab": "≤ 4 min", "fast": "≤ 2 min", "folders": ""}
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


def table(found: Found) -> list[str]:
    rows = []
    for name in found["lab"][0]["seconds"]:
        each = ([run["seconds"][name] for run in found[part]] for part in TITLES)
        rows.append([name, *(spread(seconds, "{:.0f}") for seconds in each)])
    whole = ([sum(run["seconds"].values()) for run in found[part]] for part in TITLES)
    rows.append(["all in all", *(spread(seconds, "{:.0f}") for seconds in whole)])
    rows.append(["aim", *AIMS.values()])
    ratios = ([run["balanced"] for run in found[part] if run["balanced"]] for part in TITLES)
    cells = [spread(some, "{:.1f}×") if some else "all equally fast" for some in ratios]
    rows.append(["with shares, over its own even first steps", *cells])
    return table_of(("seconds", *TITLES.values()), rows)


PARTS = {part: functools.partial(measure, part=part) for part in WORDS}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, nullcontext(), PARTS, table))
