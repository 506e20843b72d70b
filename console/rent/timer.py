"""A timer of this user's systemd, for a machine that sleeps or restarts: it starts the watcher when the time is over,
or as soon as the machine is awake again. It needs the key in a file (0600), which goes with the lease."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from console.rent.give_back_while_asleep import plain, quoted, systemctl, write_private
from console.rent.known_key import FOR_TIMER
from console.rent.lease import Book, Lease
from train.errors import BadInput

ROOT = Path(__file__).parents[2]


def units() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd/user"


def name_of(mark: str) -> str:
    return f"motley-give-back-{mark.rpartition('-')[2]}"


def possible() -> bool:
    return systemctl("show-environment")


def require() -> None:
    """Before anything is ordered."""
    if not possible():
        raise BadInput(
            "this user has no systemd that could keep a timer",
            fix="fix: leave out --timer, and keep this machine awake",
        )


def prove(book: Book, key: str) -> None:
    """Before anything is ordered, too: what it would start is started once, and finds no lease of that name."""
    file = units() / "motley-give-back-try.service"
    try:
        _keep_key(book, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_service(book, "none", "try whether a timer could give back", kind="oneshot"))
        if not (systemctl("daemon-reload") and systemctl("start", file.name)):
            raise BadInput(
                "a timer of this user's systemd could not start what gives the machine back: nothing was ordered",
                fix=f"fix: journalctl --user -u {file.name} shows why; or without --timer, and keep this machine awake",
            )
    except OSError as wrong:
        what = f"{wrong.filename}: {wrong.strerror}: nothing was ordered"
        raise BadInput(what, fix="fix: let yourself write there; or without --timer") from None
    finally:
        for left in (book.place / FOR_TIMER, file):
            with contextlib.suppress(OSError):
                left.unlink()
        systemctl("daemon-reload")


def arm(book: Book, lease: Lease, key: str) -> None:
    _keep_key(book, key)
    folder, name = units(), name_of(lease.mark)
    folder.mkdir(parents=True, exist_ok=True)
    service = _service(book, lease.mark, f"give {lease.name} back") + "Restart=on-failure\nRestartSec=20\n"
    (folder / f"{name}.service").write_text(service)
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(lease.until + 1))
    (folder / f"{name}.timer").write_text(
        f"[Unit]\nDescription=Motley: when {lease.name} is to be back\n"
        f"[Timer]\nOnCalendar={at}\nPersistent=true\nAccuracySec=1s\n[Install]\nWantedBy=timers.target\n"
    )
    if not (systemctl("daemon-reload") and systemctl("enable", "--now", f"{name}.timer")):
        forget(book, lease.mark)
        raise BadInput(f"the timer {name} could not be started", fix="fix: systemctl --user status, or without --timer")


def _service(book: Book, mark: str, why: str, *, kind: str = "simple") -> str:
    market = os.environ.get("MOTLEY_MARKET", "")
    environment = [f"MOTLEY_RENTED={book.place}", *([f"MOTLEY_MARKET={market}"] if market else [])]
    return (
        f"[Unit]\nDescription=Motley: {why}\n"
        f"[Service]\nType={kind}\nWorkingDirectory={plain(ROOT)}\n"
        + "".join(f"Environment={quoted(value)}\n" for value in environment)
        + f"ExecStart={quoted(sys.executable)} -m console.rent.watcher {mark}\n"
        f"StandardInput=file:{plain(book.place / FOR_TIMER)}\n"
    )


def forget(book: Book, mark: str) -> None:
    folder, name = units(), name_of(mark)
    if not (folder / f"{name}.timer").exists():
        return
    systemctl("disable", "--now", f"{name}.timer")
    for end in ("timer", "service"):
        (folder / f"{name}.{end}").unlink(missing_ok=True)
    systemctl("daemon-reload")
    (book.place / FOR_TIMER).unlink(missing_ok=True)


def _keep_key(book: Book, key: str) -> None:
    book.place.mkdir(parents=True, mode=0o700, exist_ok=True)
    write_private(book.place / FOR_TIMER, key + "\n")
