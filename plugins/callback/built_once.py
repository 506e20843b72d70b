"""Keeps the modules that Ansible builds, for as long as their sources do not change: each run would build each anew."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

DOCUMENTATION = """
name: built_once
type: aggregate
short_description: Keeps the modules that Ansible builds, for as long as their sources stay
description: Nothing is shown; a run finds the modules that an earlier one has built.
"""
STATES = 8
"""So many stay, for who goes to and fro between branches: some 5 MB each."""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "built_once"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        with contextlib.suppress(OSError, ImportError):  # then this run builds its own
            from train.cache import cache_dir  # noqa: PLC0415  only .venv has the path to it (make_env.sh)

            kept = cache_dir() / "modules"
            built = kept / sources()
            built.mkdir(mode=0o700, parents=True, exist_ok=True)
            if built.stat().st_uid != os.geteuid():  # what lies there is executed
                return
            os.utime(built)
            (Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache").symlink_to(built)
            for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-STATES]:
                shutil.rmtree(old, ignore_errors=True)


def sources() -> str:
    """A name for what the modules are built of."""
    digest = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for top in (*constants.DEFAULT_MODULE_PATH, *constants.DEFAULT_MODULE_UTILS_PATH):
        files = (f"{folder}/{name}" for folder, _, names in os.walk(top, followlinks=True) for name in names)
        for file in sorted(file for file in files if file.endswith(".py")):
            stat = Path(file).stat()
            digest.update(f"{file} {stat.st_size} {stat.st_mtime_ns} ".encode())
    return digest.hexdigest()[:12]
