"""Starts the program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from subprocess import DEVNULL

from console.infra import Facts


def start(known: Facts, args: Facts) -> Facts:
    began, home = time.time(), known["motley_plan_decided"]["plan"]["home"]
    words = [sys.executable, f"{home}/program.py", "train", "agent"]
    environment = os.environ | {"MOTLEY_HOME": home}
    run = subprocess.Popen(
        words, start_new_session=True, env=environment, stdout=DEVNULL, stderr=DEVNULL, stdin=DEVNULL
    )
    started = {"run": args["run"], "pid": run.pid, "how": "box", "time": began, "up": time.time(), "note": "in its box"}
    return {"changed": True, "started": started, "motley_say": started["note"]}
