#!/usr/bin/python
# MIT License, see LICENSE
"""A node's Python environment: built from wheels beside the present one, switched in one step, the previous one kept.

HOME/env is a link to env.LOCK; HOME/env.previous to the one before. A build that was killed leaves a folder without
motley-env.json, which is removed by the next one. Covered by tests/roles/test_python_env.py.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley import env_files, nvidia_module
from ansible.module_utils.motley.unpack_wheels import Place, install
from ansible.module_utils.motley.unpack_wheels import Refused as WheelRefused

DOCUMENTATION = r"""
module: python_env
short_description: Build, look at, roll back or remove a node's Python environment
description:
  - Builds an environment from locked wheels beside the present one, loads its modules, and switches a link in one step.
  - The previous environment stays for O(step=rollback). Nothing is changed while a run is running.
options:
  home: {type: path, required: true, description: The cluster's folder on the node}
  step: {type: str, choices: [look, build, link, rollback, remove], required: true, description: What to do}
  to: {type: path, description: Another folder's env to lead to (link)}
  lock: {type: str, default: "", description: Id of the locked set}
  wheels: {type: path, description: Folder that holds the wheels (build)}
  files: {type: dict, default: {}, description: "The wheels: name to {size, sha256} (build)"}
  keep_wheels: {type: bool, default: false, description: Whether the wheels stay after the build}
  imports: {type: list, elements: str, default: [], description: Modules that must load before the switch}
"""
RETURN = r"""
current: {type: str, returned: with O(step=look), description: The folder that env leads to}
lock: {type: str, returned: with O(step=look), description: Id of the set that it was built from}
why: {type: str, returned: with O(step=look), description: Why it must be built; empty if it need not}
"""
RECORD = "motley-env.json"
BEFORE = "env.before-motley"
RUN_IS_ON = ("systemctl", "is-active", "--quiet", "motley-awake.service")


class Refused(Exception):
    """Why not, and what mends it."""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "step": {"type": "str", "choices": ["look", "build", "link", "rollback", "remove"], "required": True},
            "to": {"type": "path"},
            "lock": {"type": "str", "default": ""},
            "wheels": {"type": "path"},
            "files": {"type": "dict", "default": {}},
            "imports": {"type": "list", "elements": "str", "default": []},
            "keep_wheels": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish = module.params
    home = Path(wish["home"])
    steps = {
        "look": lambda: look(home, wish["lock"], write=not module.check_mode),
        "build": lambda: build(home, wish, pretend=module.check_mode),
        "link": lambda: lead(home, wish["to"], pretend=module.check_mode),
        "rollback": lambda: rollback(home, pretend=module.check_mode),
        "remove": lambda: remove(home, pretend=module.check_mode),
    }
    try:
        module.exit_json(**steps[wish["step"]]())
    except Refused as why:
        module.fail_json(msg=str(why))
    except OSError as wrong:
        module.fail_json(msg=f"{wrong}\nfix: make room or put the rights below {home} in order, then run again")


def look(home: Path, lock: str, *, write: bool = True) -> dict[str, Any]:
    """Which locked set HOME/env has, and what is wrong with it; `harmed`, if some packages again are all it needs."""
    link = home / "env"
    has = str(read_record(link).get("lock", ""))
    why, harmed = wrong_with(link, lock or has, write=write)
    return {
        "changed": False,
        "python": this_python(),
        "driver": nvidia_module.loaded().get("version", ""),
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


def this_python() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def target(link: Path) -> str:
    return os.readlink(link) if link.is_symlink() else ""  # noqa: PTH115  the name as written


def read_record(env: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((env / RECORD).read_text()))
    except (OSError, ValueError):
        return {}


def packages(env: Path) -> list[str]:
    """Names and versions as installed, without starting its Python."""
    return sorted(path.name.removesuffix(".dist-info") for path in env.glob("lib/python*/site-packages/*.dist-info"))


# -- build ---------------------------------------------------------------------------------------------------


def build(home: Path, wish: dict[str, Any], *, pretend: bool) -> dict[str, Any]:
    lock, link = wish["lock"], home / "env"
    why, harmed = wrong_with(link, lock, write=not pretend)
    if not why:
        return {"changed": False, "motley_say": f"environment {target(link)}"}
    if harmed:
        return install_again(home, wish, harmed, pretend=pretend)
    if pretend:
        return {"changed": True, "motley_say": f"would build env.{lock}", "diff": difference(home, f"env.{lock}")}
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
            env_files.put_down(env, bring(env, Path(wish["wheels"]), wish["files"]), whole=True)
            with being_written(env):
                prove(env, wish["imports"])
            write_record(env, lock)
        difference_made = difference(home, env.name)
        switch(home, env.name)
        for old in home.glob("env.*"):
            if not old.is_symlink() and old.name not in (env.name, target(home / "env.previous"), BEFORE):
                shutil.rmtree(old)
        if not wish["keep_wheels"]:
            shutil.rmtree(home / ".wheels", ignore_errors=True)
    took_s = time.monotonic() - start
    say = f"{len(packages(env))} packages in {took_s:.0f} s as {env.name}"
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
                    raise Refused(
                        "another build is under way there for ten minutes\nfix: wait for it, then run again"
                    ) from None
                time.sleep(1)
        yield


def refuse_while_a_run_is_on() -> None:
    with suppress(FileNotFoundError):
        if subprocess.run(RUN_IS_ON, check=False).returncode == 0:
            raise Refused(
                "a run is on, and would load half of it from the other environment\nfix: make stop, then run again"
            )


def install_again(home: Path, wish: dict[str, Any], packages: list[str], *, pretend: bool) -> dict[str, Any]:
    """In the environment itself, for nothing else of it is wrong. Killed half-way, the next look finds the same."""
    names = ", ".join(package.partition("-")[0] for package in packages)
    diff = {"before": f"{names}: not as installed\n", "after": f"{names}: as installed\n"}
    if pretend:
        return {"changed": True, "motley_say": f"would install {names} again", "diff": diff}
    refuse_while_a_run_is_on()
    env = (home / "env").resolve()
    with alone(home):
        mine = {name: facts for name, facts in wish["files"].items() if of_wheel(name) in map(str.lower, packages)}
        env_files.put_down(env, bring(env, Path(wish["wheels"]), mine), whole=False)
        prove(env, wish["imports"])
        write_record(env, wish["lock"])
        if not wish["keep_wheels"]:
            shutil.rmtree(home / ".wheels", ignore_errors=True)
    return {"changed": True, "motley_say": f"{names} installed again", "diff": diff}


def of_wheel(name: str) -> str:
    return "-".join(name.split("-")[:2]).lower()


def bring(env: Path, wheels: Path, files: dict[str, Any]) -> list[env_files.Written]:
    """No package index, no pip on the machine and no venv package is needed."""
    try:
        return install(wheels, files, Place.of(env, this_python()))
    except WheelRefused as wrong:
        raise Refused(f"a wheel was refused: {wrong}\nfix: run again: damaged wheels are handed on anew") from None


def run(command: list[str], what: str) -> None:
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": os.environ.get("HOME", "/"),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Refused(
            f"{what}: {' '.join(lines[-6:])[:600]}\n"
            "fix: run again; if it stays so, the locked set does not fit this machine"
        )


def prove(env: Path, imports: list[str]) -> None:
    here = {name.split("-")[0].lower() for name in packages(env)}
    modules = [name for name in imports if name.lower() in here]
    if modules:
        run([f"{env}/bin/python", "-c", f"import {', '.join(modules)}"], "the new environment does not load")


def write_record(env: Path, lock: str) -> None:
    record = {
        "lock": lock,
        "python": this_python(),
        "packages": packages(env),
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    new = env / f".{RECORD}"
    new.write_text(json.dumps(record, indent=1) + "\n")
    sync_disk_of(env)  # the record says that all is there: after a power cut as well
    new.replace(env / RECORD)


@contextmanager
def being_written(env: Path) -> Iterator[None]:
    """The disk works while modules load; what they add is little and is written with the record."""
    writer = threading.Thread(target=sync_disk_of, args=(env,))
    writer.start()
    try:
        yield
    finally:
        writer.join()


def sync_disk_of(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(folder)
    finally:
        os.close(folder)


# -- switch --------------------------------------------------------------------------------------------------


def switch(home: Path, name: str) -> None:
    """In one step for whoever looks at HOME/env; what was there stays."""
    link, was = home / "env", target(home / "env")
    if link.exists() and not link.is_symlink():
        move(link, home / BEFORE)
        was = BEFORE
    if was and was != name:
        point(home / "env.previous", was)
    point(link, name)


def move(source: Path, to: Path) -> None:
    try:
        source.rename(to)
    except OSError:  # a read-only layer below it
        shutil.move(source, to)


def point(link: Path, name: str) -> None:
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(name)
    new.replace(link)


def lead(home: Path, to: str, *, pretend: bool) -> dict[str, Any]:
    """Another node of this machine has the environment: HOME/env leads to it."""
    if target(home / "env") == to:
        return {"changed": False}
    difference_made = difference(home, to)
    if not pretend:
        if not Path(to).exists():
            raise Refused(
                f"there is no environment at {to}\nfix: what keeps another node from building it is told above"
            )
        home.mkdir(parents=True, exist_ok=True)
        switch(home, to)
    return {"changed": True, "diff": difference_made}


def rollback(home: Path, *, pretend: bool) -> dict[str, Any]:
    link, previous = home / "env", target(home / "env.previous")
    now = target(link)
    if not previous or not (home / previous).exists():
        raise Refused(
            "there is no previous environment to go back to\nfix: make bootstrap PHASE=python_env builds the locked one"
        )
    if not pretend:
        refuse_while_a_run_is_on()
        with alone(home):
            point(home / "env.previous", now)
            point(link, previous)
    return {
        "changed": True,
        "motley_say": f"{now} → {previous}",
        "diff": {"before": f"{now}\n", "after": f"{previous}\n"},
    }


def remove(home: Path, *, pretend: bool) -> dict[str, Any]:
    """What Motley made goes; an environment that was there before comes back."""
    ours = [
        path
        for path in [*home.glob("env.*"), home / "env", home / ".env.lock", home / ".wheels"]
        if path.name != BEFORE
    ]
    ours = [path for path in ours if path.is_symlink() or path.is_file() or (path.is_dir() and (path.name != "env"))]
    if not ours:
        return {"changed": False, "motley_say": "nothing to put back"}
    if not pretend:
        refuse_while_a_run_is_on()
        for path in ours:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if (home / BEFORE).exists():
            move(home / BEFORE, home / "env")
        with suppress(OSError):
            home.rmdir()
    return {"changed": True, "motley_say": f"{', '.join(path.name for path in ours)} removed"}


def difference(home: Path, name: str) -> dict[str, Any]:
    """For --diff: what env leads to, and its packages."""
    return {
        "before_header": "env",
        "after_header": "env",
        "before": f"{target(home / 'env') or 'none'}\n",
        "after": f"{name}\n",
    }


if __name__ == "__main__":
    main()
