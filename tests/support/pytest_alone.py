"""pytest in a process of its own, with this suite's conftest and settings, on a file that is given."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT


def run(folder: Path, source: str, *settings: str, **environment: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_a.py"
    file.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(file)]
    command += [word for setting in settings for word in ("-o", setting)]
    env = os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
