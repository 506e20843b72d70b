"""Whether this machine can build what Triton starts GPU kernels with: a module in C for its Python, built at run time.

Triton takes gcc, else clang, and the headers where the interpreter's sysconfig has them. `look` tries just that; what
is missing and which packages bring it follow from what it found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from .driver_packages import Simulated

Data = dict[str, Any]

PACKAGED = Path("/usr/include")
FIX = "./motley bootstrap --phase gpu_driver"
# The system's headers that Triton's own source includes, alone and with Python's.
PLAIN = "#include <dlfcn.h>\n#include <stdalign.h>\n#include <stdbool.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
MODULE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "motley_trial", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_motley_trial(void) { return PyModule_Create(&definition); }
"""
FLAGS = ("-O3", "-shared", "-fPIC", "-Wno-psabi")


def look() -> Data:
    """Compiler, headers, and what keeps the two from building a module that loads (trouble; else empty)."""
    include = Path(sysconfig.get_paths(scheme="posix_prefix")["include"])
    facts: Data = {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "include": str(include),
        "header": (include / "Python.h").is_file(),
        "compiler": shutil.which("gcc") or shutil.which("clang") or "",
        "c": False,
        "trouble": "",
    }
    if facts["compiler"]:
        with tempfile.TemporaryDirectory() as folder:
            facts["trouble"] = _build(facts["compiler"], PLAIN, include, Path(folder))
            facts["c"] = not facts["trouble"]
            if facts["c"] and facts["header"]:
                facts["trouble"] = _build(facts["compiler"], PLAIN + MODULE, include, Path(folder)) or _load(folder)
    return facts


def _build(compiler: str, source: str, include: Path, folder: Path) -> str:
    file = folder / "motley_trial.c"
    file.write_text(source)
    return _trouble(compiler, str(file), *FLAGS, "-o", str(file.with_suffix(".so")), f"-I{include}")


def _load(folder: str) -> str:
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return ""  # Triton keeps what it builds in the cluster's folder
    return _trouble(sys.executable, "-Esc", "import motley_trial", folder=folder)


def _trouble(*command: str, folder: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder)
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    error = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return (error.rpartition("error: ")[2] or f"exit status {done.returncode}") if done.returncode else ""


def lacking(facts: Data) -> list[str]:
    """The packages that bring what is missing, by the names that Debian and Ubuntu share."""
    c = [] if facts["c"] else ["libc6-dev"] if facts["compiler"] else ["gcc", "libc6-dev"]
    return c + ([] if facts["header"] else [f"libpython{facts['python']}-dev"])


def beyond_packages(facts: Data) -> tuple[str, str]:
    """Why no package helps, and the fix: another Python than the system's looks for its headers elsewhere."""
    if facts["header"] or Path(facts["include"]).is_relative_to(PACKAGED):
        return "", ""
    what = f"its Python {facts['python']} looks for Python.h in {facts['include']}, where no package puts it"
    return what, "ansible_python_interpreter: /usr/bin/python3 for it in hosts.yml; or put that Python's headers there"


def against(names: list[str], simulated: Simulated, touched: list[str]) -> tuple[str, str]:
    """Why these packages are not installed, and the fix; both empty where nothing speaks against it."""
    wanted = " ".join(names)
    if simulated.trouble:
        what = f"GPU kernels are built with {wanted}, and apt does not bring them: {simulated.trouble}"
        return (
            what,
            f"give it a package source that has them; see with: sudo apt-get update; apt-get -s install {wanted}",
        )
    if other := [*simulated.removes, *touched]:
        what = f"GPU kernels are built with {wanted}; to install them would change {', '.join(other)}"
        return what, "upgrade it first (sudo apt full-upgrade), then run again"
    return "", ""


def fault(facts: Data) -> tuple[str, str]:
    """Why no kernel can be built, and the fix; both empty where one can."""
    python, compiler = facts["python"], facts["compiler"]
    again = f"sudo apt-get install --reinstall gcc libc6-dev libpython{python}-dev"
    what, fix = beyond_packages(facts)
    if not compiler:
        what, fix = "there is no C compiler (gcc or clang), so no GPU kernel can be built", ""
    elif not facts["c"]:
        what, fix = f"{compiler} builds no C, so no GPU kernel: {facts['trouble']}", ""
    elif not facts["header"]:
        what = what or f"there is no {facts['include']}/Python.h, so no GPU kernel can be built"
    elif facts["trouble"]:
        return f"{compiler} builds no module for Python {python}, so no GPU kernel: {facts['trouble']}", again
    else:
        return "", ""
    return what, fix or f"{FIX}; if it stays so, on it: {again}"
