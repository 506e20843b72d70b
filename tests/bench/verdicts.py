"""How long the verdict on a model takes: `check-model` in a process of its own with nothing kept, as the first plan of
a model has it on its head, for each family that `make test` proves (tests/train/proven_families.py).

make bench PARTS=verdicts
python -m tests.bench.verdicts --repeats 1
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.page import Figures, Found, bench, cpu_seconds, spread
from tests.bench.trainer import PYTHON, answer
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of

NAME = "verdicts"
AIM_S = 20
KINDS = ("seconds", "of_processor")
LIST = """
import json
from tests.train import proven_families as known
print(json.dumps({name: known.config_of(name).to_dict() for name in known.QUICK}, default=str))
"""


def measure(_: None) -> Figures:
    """Seconds of each family, and those of the processor, which another's work does not lengthen."""
    env = dict(os.environ) | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}
    seconds, computed = {}, {}
    for name, config in answer("-c", LIST).items():
        with tempfile.TemporaryDirectory() as cache:
            since, before = time.monotonic(), cpu_seconds()
            words: list[str | Path] = [PYTHON, "-m", "train", "check-model", "--model", "-", "--json"]
            done = subprocess.run(
                words,
                env=env | {"MOTLEY_CACHE": cache},
                cwd=REPOSITORY,
                input=json.dumps(config),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode not in (0, 1):
                raise SystemExit(f"{name}: {done.stderr[-300:]}")
            seconds[name], computed[name] = round(time.monotonic() - since, 1), round(cpu_seconds() - before, 1)
    return {"seconds": seconds, "of_processor": computed}


def table(found: Found) -> list[str]:
    """By family, the slowest first."""
    runs = found["families"]
    names = sorted(runs[-1]["of_processor"], key=runs[-1]["of_processor"].get, reverse=True)
    rows = (
        (name, *(spread([run[kind][name] for run in runs if name in run[kind]], "{:.1f}") for kind in KINDS))
        for name in names
    )
    return table_of(("the verdict on", f"s, aim {AIM_S}", "of it on a processor"), rows)


PARTS = {"families": measure}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, contextlib.nullcontext(), PARTS, table))
