"""What GPU kernels are built with: what is missing, the packages that bring it, and when nothing is to be done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.motley import compiler
from plugins.module_utils.motley.driver_packages import Simulated
from tests.support.stand_ins import program

STOCK: dict[str, Any] = {
    "python": "3.12",
    "include": "/usr/include/python3.12",
    "header": False,
    "compiler": "",
    "c": False,
    "trouble": "",
}
WHOLE = STOCK | {"header": True, "compiler": "/usr/bin/gcc", "c": True}


@pytest.mark.parametrize(
    ("found", "packages"),
    [
        (STOCK, ["gcc", "libc6-dev", "libpython3.12-dev"]),
        (STOCK | {"python": "3.11"}, ["gcc", "libc6-dev", "libpython3.11-dev"]),  # Debian 12
        (STOCK | {"compiler": "/usr/bin/gcc"}, ["libc6-dev", "libpython3.12-dev"]),
        (STOCK | {"compiler": "/usr/bin/clang", "c": True}, ["libpython3.12-dev"]),
        (STOCK | {"header": True}, ["gcc", "libc6-dev"]),
        (WHOLE, []),
    ],
)
def test_the_fewest_packages_that_bring_what_is_missing(found: dict[str, Any], packages: list[str]) -> None:
    assert compiler.lacking(found) == packages
    what, fix = compiler.fault(found)
    assert bool(what) == bool(fix) == bool(packages)


def test_another_python_than_the_systems_is_not_given_headers_where_it_does_not_look() -> None:
    own = STOCK | {"python": "3.13", "include": "/opt/python/include/python3.13"}
    what, fix = compiler.beyond_packages(own)
    assert "/opt/python/include/python3.13" in what and "ansible_python_interpreter: /usr/bin/python3" in fix
    assert compiler.fault(WHOLE | own | {"compiler": "/usr/bin/gcc", "c": True}) == (what, fix)
    assert compiler.beyond_packages(own | {"header": True}) == compiler.beyond_packages(STOCK) == ("", "")


def test_what_apt_refuses_or_would_take_away_is_said_with_the_packages() -> None:
    names = compiler.lacking(STOCK)
    fits = Simulated({"gcc": "4:13.2", "libc6": "2.39-0ubuntu8.6"})
    assert compiler.against(names, fits, []) == ("", "")
    what, fix = compiler.against(names, Simulated(trouble="Unable to locate package gcc"), [])
    assert "gcc libc6-dev libpython3.12-dev" in what and "Unable to locate package gcc" in what and "source" in fix
    assert "would change clang-19" in compiler.against(names, Simulated(removes=("clang-19",)), [])[0]
    assert "would change linux-image-6.8" in compiler.against(names, fits, ["linux-image-6.8"])[0]


# -- a machine as it is: this one, and the programs on its path -----------------------------------------------------


def on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    for name, lines in programs.items():
        program(folder / name, f"#!/bin/sh\n{lines}\n")
    monkeypatch.setenv("PATH", str(folder))


def test_a_machine_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_path(tmp_path, monkeypatch)
    found = compiler.look()
    assert (found["compiler"], found["c"]) == ("", False)
    what, fix = compiler.fault(found)
    assert what == "there is no C compiler (gcc or clang), so no GPU kernel can be built"
    assert fix.startswith("./motley bootstrap --phase gpu_driver; ")


def test_a_compiler_that_lacks_the_systems_headers_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_path(tmp_path, monkeypatch, clang='echo "x.c:1:10: fatal error: dlfcn.h: No such file" >&2; exit 1')
    what, _ = compiler.fault(compiler.look())
    assert what == f"{tmp_path}/clang builds no C, so no GPU kernel: dlfcn.h: No such file"


def test_a_module_that_does_not_load_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(compiler.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    cat = shutil.which("cat")
    on_the_path(tmp_path, monkeypatch, gcc=f'while [ "$1" != -o ]; do shift; done; echo no library | {cat} > "$2"')
    what, fix = compiler.fault(compiler.look())
    assert "builds no module for Python" in what and "--reinstall" in fix
