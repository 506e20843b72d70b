"""What give_back_from_home.py sends: one process there waits for the time and then gives back until nothing is left.

Where the node's user has a systemd that lives without a login (loginctl enable-linger), the process is a unit of it
and outlives a restart of the node: for that the key lies in a file (0600) until the machine is given back. Elsewhere
the key is in the memory of the process alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from console.rent.clore import Clore
from console.rent.market import Declined, Unanswered

FOLDER = Path.home() / ".motley-keeper"
UNITS = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


class BegunAt(TypedDict, total=False):
    """When the node began to wait, by its clocks."""

    boot: str
    end_up: float
    end_wall: float
    began_wall: float


class Keeping(BegunAt):
    """All that the process there needs; it travels as text."""

    key: str
    url: str
    mark: str
    order: int
    left_s: float
    after_s: float
    every_s: float
    look_s: float
    doubt_s: float


def on_node(facts: Keeping, program: str) -> None:
    market, why = Clore(key=facts["key"], url=facts["url"]), ""
    try:
        market.orders()
    except (Unanswered, Declined) as error:
        why = f"the market: {error}"
    outlives = lingers()
    if facts["mark"] and not why:
        facts |= {"boot": boot(), "end_up": up() + facts["left_s"], "end_wall": time.time() + facts["left_s"]}
        facts["began_wall"] = time.time()
        outlives = outlives and as_unit(facts, program)
        if not outlives:
            in_memory(market, facts)
    print(json.dumps({"why": why, "outlives": outlives}))
    sys.stdout.flush()


def in_memory(market: Clore, facts: Keeping) -> None:
    if os.fork():
        return
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    keep(market, facts)
    os._exit(0)


def lingers() -> bool:
    user = pwd.getpwuid(os.getuid()).pw_name
    return Path("/var/lib/systemd/linger", user).exists() and systemctl("show-environment")


def as_unit(facts: Keeping, program: str) -> bool:
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    UNITS.mkdir(parents=True, exist_ok=True)
    name = f"{facts['mark']}.py"
    write_private(FOLDER / f"{facts['mark']}.json", json.dumps(facts))
    write_private(FOLDER / name, f"{program}\nfrom {__name__} import main\nmain()\n")
    (UNITS / unit(facts["mark"])).write_text(
        f"[Unit]\nDescription=Motley: give the rented machine {facts['order']} back\n"
        f"[Service]\nExecStart={quoted(sys.executable)} -I {quoted(FOLDER / name)} {facts['mark']}\n"
        "Restart=on-failure\nRestartSec=20\n[Install]\nWantedBy=default.target\n"
    )
    if systemctl("daemon-reload") and systemctl("enable", "--now", unit(facts["mark"])):
        return True
    forget(facts["mark"])
    return False


def main() -> None:
    """Runs as the unit of one lease: whatever happens, what is left to do is in the file."""
    facts = json.loads((FOLDER / f"{sys.argv[1]}.json").read_text())
    keep(Clore(key=facts["key"], url=facts["url"]), facts)
    forget(facts["mark"])


def forget(mark: str) -> None:
    for end in ("json", "py"):
        (FOLDER / f"{mark}.{end}").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        FOLDER.rmdir()
    systemctl("disable", unit(mark))
    (UNITS / unit(mark)).unlink(missing_ok=True)
    systemctl("daemon-reload")


def unit(mark: str) -> str:
    return f"motley-keeper-{mark.rpartition('-')[2]}.service"


def plain(text: str | Path) -> str:
    """Escapes a line of a unit that is one word as a whole: there % begins a specifier, and a space the next word."""
    return str(text).replace("%", "%%")


def quoted(text: str | Path) -> str:
    escaped = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def write_private(file: Path, text: str) -> None:
    """Writes a new file that only its owner reads, from its first byte on."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)


def systemctl(*words: str) -> bool:
    """Whether the systemd of this user has done it."""
    environment = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def up() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def left_s(facts: Keeping) -> float:
    """After a restart only the clock can tell; if that has gone back since, all time is over."""
    if facts["boot"] == boot():
        left = facts["end_up"] - up()
    else:
        left = facts["end_wall"] - time.time() if time.time() >= facts["began_wall"] else -facts["after_s"]
    return left + facts["after_s"]


def keep(
    market: Clore,
    facts: Keeping,
    *,
    left: Callable[[Keeping], float] = left_s,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Whatever the market answers, and whatever that breaks here.

    A list that leaves the order out is no proof: it is ended by its number, and looked for until the market has both
    ended it and lists it no longer. Where it says only one of them, somebody else may have been quicker.
    """
    ended, doubt_s = False, facts["doubt_s"]
    while doubt_s > 0:
        if (early_s := left(facts)) > 0:
            sleep(min(facts["look_s"], early_s))
            continue
        listed = ours(market, facts)
        for number in {facts["order"], *(listed or [])}:
            with contextlib.suppress(Exception):
                market.cancel(number)
                ended = ended or number == facts["order"]
        if ended and listed == []:
            return
        gone = listed == [] or (ended and listed is None)
        pause_s = facts["look_s"] if gone else facts["every_s"]
        doubt_s = doubt_s - pause_s if gone else facts["doubt_s"]
        sleep(pause_s)


def ours(market: Clore, facts: Keeping) -> list[int] | None:
    """The numbers of this lease's orders; None where the market's list cannot be read."""
    try:
        orders = market.orders()
        return [order.number for order in orders if facts["mark"] == order.mark or facts["order"] == order.number]
    except Exception:
        return None
