"""Which processes of a run are on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from plugins.module_utils.motley.run_processes import processes

PROGRAM = """
import ctypes
PR_SET_NAME = 15
ctypes.CDLL(None).prctl(PR_SET_NAME, "vierzehn Zeichä".encode())
print("named", flush=True)
input()
"""


def test_one_is_seen_whose_name_the_kernel_cuts_within_a_letter(tmp_path: Path) -> None:
    environment = {**os.environ, "MOTLEY_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "named\n"
        assert [*processes(tmp_path)] == [process.pid]
        process.stdin.close()
