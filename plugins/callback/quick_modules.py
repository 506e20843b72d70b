"""Modules start in less than half the time, 0.18 s of a core instead of 0.43; a bootstrap runs a hundred of them.

- The built modules are kept until their sources change: Ansible would build them again in every run.
- It holds bytecode beside the sources; a node with another Python passes over it.
- Python reads it at once. As a program on its standard input it would be read one character at a time.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import io
import marshal
import os
import shlex
import shutil
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.executor import module_common
from ansible.plugins.callback import CallbackBase
from ansible.plugins.shell.sh import ShellModule
from ansible.release import __version__

DOCUMENTATION = """
name: quick_modules
type: aggregate
short_description: Modules that start sooner
description: Nothing is shown; modules are built once, with bytecode, and a node's Python reads them at once.
"""
STATES = 8
"""How many are kept, for a developer who changes branches: some 15 MB each."""
READ_AT_ONCE = "import sys; exec(sys.stdin.buffer.read())"
COMMAND = ShellModule.build_module_command
CACHED: Any = getattr(module_common, "_CachedModule", None)  # not public: of another Ansible, it may be gone
DUMP = CACHED and CACHED.dump


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "quick_modules"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        ShellModule.build_module_command = build_module_command
        if CACHED:
            CACHED.dump = dump
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
    digest = hashlib.sha256(f"{__version__} {sys.version}".encode() + Path(__file__).read_bytes())
    for top in (*constants.DEFAULT_MODULE_PATH, *constants.DEFAULT_MODULE_UTILS_PATH):
        files = (f"{folder}/{name}" for folder, _, names in os.walk(top, followlinks=True) for name in names)
        for file in sorted(file for file in files if file.endswith(".py")):
            stat = Path(file).stat()
            digest.update(f"{file} {stat.st_size} {stat.st_mtime_ns} ".encode())
    return digest.hexdigest()[:12]


def build_module_command(self: Any, env_string: str, shebang: str | None, cmd: str, arg_path: str | None = None) -> str:
    """Ansible's command; where the module comes through the standard input (no `cmd`), Python reads it at once."""
    command: str = COMMAND(self, env_string, shebang, cmd, arg_path=arg_path)
    piped = not cmd and "python" in (shebang or "")
    return f"{command} -c {shlex.quote(READ_AT_ONCE)}" if piped else command


def dump(self: Any, path: str) -> None:
    DUMP(dataclasses.replace(self, zip_data=compiled(self.zip_data)), path)


def compiled(zip_data: bytes) -> bytes:
    """The same files, each with its bytecode: "unchecked", so that the time of its source does not matter."""
    there, made = zipfile.ZipFile(io.BytesIO(base64.b64decode(zip_data))), io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for file in there.infolist():
            source = there.read(file)
            out.writestr(zipfile.ZipInfo(file.filename, file.date_time), source, zipfile.ZIP_DEFLATED)
            if file.filename.endswith(".py"):
                code = marshal.dumps(compile(source, file.filename, "exec", dont_inherit=True))
                pyc = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code
                out.writestr(zipfile.ZipInfo(f"{file.filename}c", file.date_time), pyc, zipfile.ZIP_DEFLATED)
    return base64.b64encode(made.getvalue())
