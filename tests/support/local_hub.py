"""The lab's hub in a thread, and the hub's own client in processes: which hub that is, it reads as it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.hub import Served
from tests.support import ROOT, pace, stand_ins


@dataclass(frozen=True, slots=True)
class LocalHub(Served):
    def asked_by(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A Python program that asks it, to its end; its cache is beside the hub's folder."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        clean |= {"HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": f"{self.folder}-cache"}
        return pace.run(sys.executable, *words, cwd=ROOT, env=clean | env)


@contextmanager
def local_hub(folder: Path) -> Iterator[LocalHub]:
    """`folder` has what it holds, as lab/hub.py says."""
    with stand_ins.hub(folder) as url:
        hub = LocalHub(folder, url)
        hub.behave()
        yield hub
