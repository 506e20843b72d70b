#!/usr/bin/python
# MIT License, see LICENSE
"""A node's Python environment: built from wheels beside the present one, switched in one step, the previous one kept.

HOME/env is a link to env.LOCK; HOME/env.previous to the one before. A build that was killed leaves a folder without
motley-env.json, which is removed by the next one. Covered by tests/roles/test_python_env.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley import env_files
from ansible.module_utils.motley.documented import Done, module_of
from ansible.module_utils.motley.env_link import BEFORE, move, point, switch, target
from ansible.module_utils.motley.env_record import Look, read_record, sync_disk_of, this_python, write_record
from ansible.module_utils.motley.errors import ModuleError
from ansible.module_utils.motley.files import difference
from ansible.module_utils.train import nvidia_driver
from ansible.module_utils.train.files import file_hash

DOCUMENTATION = r"""
module: python_env
short_description: Build, look at, roll back or remove a node's Python environment
author: Motley
description:
  - Builds an environment from locked wheels beside the present one, loads its modules, and switches a link in one step.
  - The previous environment stays for O(step=rollback). Nothing is changed while a run is running.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "step": {"type": "str", "choices": ["look", "build", "link", "rollback", "remove"], "required": true,
    "description": "What to do"},
  "to": {"type": "path", "description": "Another folder's env to lead to (link)"},
  "lock": {"type": "str", "default": "", "description": "Id of the locked set"},
  "wheels": {"type": "path", "description": "Folder that holds the wheels (build)"},
  "files": {"type": "dict", "default": {}, "description": "The wheels, and uv's: name to {size, sha256} (build)"},
  "itself": {"type": "list", "elements": "dict", "default": [],
    "description": "Requirements that the machine fetches from an index by itself, instead of wheels (text, hashed)"},
  "index": {"type": "list", "elements": "str", "default": [], "description": "uv's options that say which index"},
  "keep_wheels": {"type": "bool", "default": false, "description": "Whether the wheels stay after the build"},
  "imports": {"type": "list", "elements": "str", "default": [],
    "description": "Modules that must load before the switch"},
  "over": {"type": "path", "description": "An environment whose packages its modules load beside its own (build)"}
}
"""
EXAMPLES = """
- name: Look at the environment it has
  python_env:
    home: ~/ai-cluster
    step: look
  register: seen
"""
RETURN = r"""
current: {type: str, returned: with O(step=look), description: The folder that env leads to}
lock: {type: str, returned: with O(step=look), description: Id of the set that it was built from}
why: {type: str, returned: with O(step=look), description: Why it must be built; empty if it need not}
"""
DAMAGED = "run again: damaged wheels are sent again"
UNFIT = "run again; if it stays so, the locked set does not fit this machine"
UV = (
    *("pip", "install", "--quiet", "--color=never", "--no-config", "--no-build", "--no-deps"),
    *("--link-mode=hardlink", "--requirement=-"),
)
OFFLINE = ("--offline", "--no-index", "--require-hashes")
NO_INDEX = (
    "can that machine reach the package index? see motley_python_env_index; or motley_python_env_fetch: controller"
)
DISK_ERRORS = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}
BUILT = re.compile(r"env\.[0-9a-f]+(-again)?")
RUN_IS_ON = ("systemctl", "is-active", "--quiet", "motley-awake.service")


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    home = Path(params["home"])
    steps: dict[str, Callable[[], Look | Done]] = {
        "look": lambda: look(home, params["lock"], write=not module.check_mode),
        "build": lambda: build(home, params, pretend=module.check_mode),
        "link": lambda: lead(home, params["to"], pretend=module.check_mode),
        "rollback": lambda: rollback(home, pretend=module.check_mode),
        "remove": lambda: remove(home, pretend=module.check_mode),
    }
    try:
        module.exit_json(**steps[params["step"]]())
    except ModuleError as why:
        module.fail_json(msg=str(why))
    except OSError as wrong:
        module.fail_json(msg=f"{wrong}\nfix: make room or put the rights below {home} in order, then run again")


Wheels = dict[str, dict[str, str]]
"""File name → its facts, such as sha256."""


class Requirements(TypedDict):
    text: str
    hashed: bool


class Build(TypedDict):
    """The options of the step build."""

    lock: str
    imports: list[str]
    over: str | None
    keep_wheels: bool
    wheels: str
    files: Wheels
    itself: list[Requirements]
    index: list[str]


def look(home: Path, lock: str, *, write: bool = True) -> Look:
    """Which locked set HOME/env has, and what is wrong with it; `harmed`, if some packages again are all it needs."""
    link = home / "env"
    record = read_record(link)
    has = record["lock"] if record else ""
    why, harmed = wrong_with(link, lock or has, write=write)
    return {
        "changed": False,
        "python": this_python(),
        "machine": platform.machine(),
        "driver": nvidia_driver.loaded().get("version", ""),
        "current": target(link),
        "lock": has,
        "why": why,
        "harmed": harmed,
    }


def wrong_with(env: Path, lock: str, *, write: bool = True) -> tuple[str, list[str]]:
    """Empty if nothing; the packages that are to be installed again, if they are all that is wrong."""
    if not env.exists():
        return "there is no environment yet", []
    record = read_record(env)
    if not record:
        return "it was not made by Motley", []
    if record["lock"] != lock:
        return f"it has the locked set {record['lock']}, {lock} is wanted", []
    if record["python"] != this_python():
        return f"it was made for Python {record['python']}, the machine has {this_python()}", []
    if not os.access(env / "bin/python", os.X_OK):
        return "its Python is gone", []
    drift = env_files.look(env, record["packages"], write=write)
    return f"it was changed since: {drift}" if drift else "", drift.packages


# -- build ---------------------------------------------------------------------------------------------------


def build(home: Path, params: Build, *, pretend: bool) -> Done:
    lock, link = params["lock"], home / "env"
    why, harmed = wrong_with(link, lock, write=not pretend)
    if not why:
        return {"changed": False, "motley_say": f"environment {target(link)}"}
    if harmed:
        return install_again(home, params, harmed, pretend=pretend)
    if pretend:
        return {"changed": True, "motley_say": f"would build env.{lock}", "diff": lead_to(home, f"env.{lock}")}
    refuse_while_a_run_is_on()
    start = time.monotonic()
    home.mkdir(parents=True, exist_ok=True)
    with alone(home):
        was = target(link)
        # The one in use is never touched, not even when it is the one that was tampered with.
        env = home / (f"env.{lock}" if was != f"env.{lock}" else f"env.{lock}-again")
        if wrong_with(env, lock)[0]:
            shutil.rmtree(env, ignore_errors=True)
            run([sys.executable, "-m", "venv", "--without-pip", str(env)], "the environment could not be made")
            bring(home, env, params)
            with being_written(env):
                prove(env, params["imports"], params.get("over"))
            write_record(env, lock)
        difference_made = lead_to(home, env.name)
        switch(home, env.name)
        for old in environments(home):
            if old.name not in (env.name, target(home / "env.previous")):
                shutil.rmtree(old)
        if not params["keep_wheels"]:
            shutil.rmtree(home / ".wheels", ignore_errors=True)
    took_s = time.monotonic() - start
    say = f"{len(env_files.installed(env))} packages in {took_s:.0f} s as {env.name}"
    return {"changed": True, "seconds": round(took_s, 1), "motley_say": say, "diff": difference_made}


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One build at a time: one that outlived its connection is waited for."""
    with (home / ".env.lock").open("w") as lock:
        end = time.monotonic() + 600
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    what = "another build is under way there for ten minutes"
                    raise ModuleError(what, "wait for it, then run again") from None
                time.sleep(1)
        yield


def refuse_while_a_run_is_on() -> None:
    with suppress(FileNotFoundError):
        if subprocess.run(RUN_IS_ON, check=False).returncode == 0:
            what = "a run is running, and would load half of it from the other environment"
            raise ModuleError(what, "./motley stop, then run again")


def install_again(home: Path, params: Build, packages: list[str], *, pretend: bool) -> Done:
    """In the environment itself, for nothing else of it is wrong. Killed half-way, the next look finds the same."""
    names = ", ".join(package.partition("-")[0] for package in packages)
    diff = {"before": f"{names}: not as installed\n", "after": f"{names}: as installed\n"}
    if pretend:
        return {"changed": True, "motley_say": f"would install {names} again", "diff": diff}
    refuse_while_a_run_is_on()
    env = (home / "env").resolve()
    with alone(home):
        with set_aside(env_files.site_of(env), packages, env.parent / ".wheels/aside"):
            bring(home, env, params, [package.lower() for package in packages])
        prove(env, params["imports"], params.get("over"))
        write_record(env, params["lock"])
        if not params["keep_wheels"]:
            shutil.rmtree(home / ".wheels", ignore_errors=True)
    return {"changed": True, "motley_say": f"{names} installed again", "diff": diff}


@contextmanager
def set_aside(site: Path, packages: list[str], aside: Path) -> Iterator[None]:
    """uv would take a package away by its RECORD, which may be harmed. If uv fails, now or after a kill, it is back."""
    aside.mkdir(parents=True, exist_ok=True)
    pairs = [(site / f"{package}.dist-info", aside / f"{package}.dist-info") for package in packages]
    try:
        for info, away in pairs:
            if info.exists():
                shutil.rmtree(away, ignore_errors=True)
                info.rename(away)
        yield
    except BaseException:
        for info, away in pairs:
            if away.exists():
                shutil.rmtree(info, ignore_errors=True)
                away.rename(info)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def bring(home: Path, env: Path, params: Build, only: list[str] | None = None) -> None:
    """No package index, no pip on the machine and no venv package is needed: uv is among the wheels."""
    wheels, files, cache = Path(params["wheels"]), params["files"], home / ".wheels/cache"
    shutil.rmtree(cache, ignore_errors=True)  # a power cut may have left files in it that are not whole
    cache.mkdir(parents=True)
    uv = unpack_uv(wheels, files, cache)
    command = [str(uv), *UV, f"--cache-dir={cache}", f"--python={env}/bin/python"]
    for part in params.get("itself", []):
        text = "\n".join(line for line in part["text"].splitlines() if only is None or env_files.of_lock(line) in only)
        checked = ["--require-hashes"] if part["hashed"] else []
        what = "its packages could not be fetched by the machine itself"
        run([*command, *checked, *params["index"]], what, NO_INDEX, text)
    lines = [
        "{}=={} --hash=sha256:{}".format(*name.split("-")[:2], facts["sha256"])
        for name, facts in files.items()
        if not name.startswith("uv-") and (only is None or env_files.of_wheel(name) in only)
    ]
    if not params.get("itself"):
        run([*command, *OFFLINE, f"--find-links={wheels}"], "a wheel was refused", DAMAGED, "\n".join(lines))
    shutil.rmtree(cache)  # its files are hard links of the installed ones, whose times change with it
    env_files.write_down(env)


def unpack_uv(wheels: Path, files: Wheels, folder: Path) -> Path:
    name = next(name for name in files if name.startswith("uv-"))
    if file_hash(wheels / name) != files[name]["sha256"]:
        raise ModuleError(f"a wheel was refused: {name} is not as locked", DAMAGED)
    with zipfile.ZipFile(wheels / name) as wheel:
        uv = Path(wheel.extract(f"{'-'.join(name.split('-')[:2])}.data/scripts/uv", folder))
    uv.chmod(0o755)
    return uv


def run(command: list[str], what: str, fix: str = UNFIT, words: str = "", **more: str) -> None:
    """`more`: of its environment."""
    environment = {name: os.environ.get(name, default) for name, default in (("PATH", "/usr/bin:/bin"), ("HOME", "/"))}
    environment |= more
    done = subprocess.run(command, capture_output=True, text=True, check=False, input=words, env=environment)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = f"{what}: {' '.join(lines[-6:])[:600]}"
        if DISK_ERRORS & {*map(int, re.findall(r"\(os error (\d+)\)", why))}:  # others are of the network
            raise OSError(why)
        raise ModuleError(why, fix)


def prove(env: Path, imports: list[str], over: str | None = None) -> None:
    """`over`: an environment of which it holds only what that one lacks."""
    here = {name.split("-")[0].lower() for name in env_files.installed(env)}
    modules = [name for name in imports if name.lower() in here]
    if modules:
        below = {"PYTHONPATH": str(env_files.site_of(Path(over)))} if over else {}
        load = [f"{env}/bin/python", "-c", f"import {', '.join(modules)}"]
        run(load, "the new environment does not load", **below)


@contextmanager
def being_written(env: Path) -> Iterator[None]:
    """The disk works while modules load; what they add is little and is written with the record."""
    writer = threading.Thread(target=sync_disk_of, args=(env,))
    writer.start()
    try:
        yield
    finally:
        writer.join()


# -- switch --------------------------------------------------------------------------------------------------


def lead(home: Path, to: str, *, pretend: bool) -> Done:
    """Another node of this machine has the environment: HOME/env leads to it."""
    if target(home / "env") == to:
        return {"changed": False}
    difference_made = lead_to(home, to)
    if not pretend:
        if not Path(to).exists():
            fix = "the messages above show what keeps another node from building it"
            raise ModuleError(f"there is no environment at {to}", fix)
        home.mkdir(parents=True, exist_ok=True)
        switch(home, to)
    return {"changed": True, "diff": difference_made}


def rollback(home: Path, *, pretend: bool) -> Done:
    link, previous = home / "env", target(home / "env.previous")
    now = target(link)
    if not previous or not (home / previous).exists():
        fix = "./motley bootstrap --phase python_env builds the locked one"
        raise ModuleError("there is no previous environment to go back to", fix)
    if not pretend:
        refuse_while_a_run_is_on()
        with alone(home):
            point(home / "env.previous", now)
            point(link, previous)
    diff = {"before": f"{now}\n", "after": f"{previous}\n"}
    return {"changed": True, "motley_say": f"{now} → {previous}", "diff": diff}


def remove(home: Path, *, pretend: bool) -> Done:
    """What Motley made goes; an environment that was there before comes back."""
    if not (ours := made_here(home)):
        return {"changed": False, "motley_say": "nothing to put back"}
    if not pretend:
        refuse_while_a_run_is_on()
        with suppress(FileNotFoundError), alone(home):  # nodes of one machine share it, and end at the same moment
            for path in made_here(home):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            if (home / BEFORE).exists():
                move(home / BEFORE, home / "env")
        with suppress(OSError):
            home.rmdir()
    shown = [path.name for path in ours if not path.name.startswith(".")] or ["what was left of a build"]
    return {"changed": True, "motley_say": f"{', '.join(shown)} removed"}


def made_here(home: Path) -> list[Path]:
    links = [link for link in (home / "env.previous", home / "env") if link.is_symlink()]
    rest = [path for path in (home / ".env.lock", home / ".wheels") if path.exists()]
    return [*environments(home), *links, *rest]


def environments(home: Path) -> list[Path]:
    """What was built here, whole or not; another env.sh or env.mine is its owner's."""
    return [path for path in home.glob("env.*") if BUILT.fullmatch(path.name) and not path.is_symlink()]


def lead_to(home: Path, name: str) -> dict[str, str]:
    return difference("env", f"{target(home / 'env') or 'none'}\n", f"{name}\n")


if __name__ == "__main__":
    main()
