"""Sends what a followed run has to tell to `motley_notify`, beside the live view and without disturbing it.

The address comes out of ansible-vault into memory alone: from the playbook of a launch through a named pipe, otherwise
by the vault's password, which is asked for. What was told is remembered as empty files without it. With
`motley_notify_from: nodes` a launch brings the address to the nodes, and they send (train/cluster/notifier.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from console.infra.choose import from_inventory
from console.infra.node import ask_all
from console.inventory.read import Inventory
from console.strict_yaml import Vaulted
from train.errors import BadInput
from train.notify import Notice, send
from train.runlog import paths

ROOT = Path(__file__).parents[1]
KEY, FROM = "motley_notify", "motley_notify_from"
LOCKED = f"{KEY} is locked by ansible-vault\nfix: "
FINISH_S = 40.0
"""How long the end of a run may wait for its message: each try of train/notify.py has had its time."""
LEAVE_S = 2.0
Send = Callable[[str, Notice], str]
say = functools.partial(print, flush=True)


class Notifier:
    """Sends one run's notices. A file for each thing told keeps every follower on this controller from repeating it."""

    def __init__(self, address: str, told: Path, send: Send = send) -> None:
        self.address, self.told, self.send = address, told, send
        self.waiting: queue.Queue[Notice | None] = queue.Queue()
        self.unsent: set[Path] = set()
        self.failed, self.shown = "", False
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def tell(self, notice: Notice) -> None:
        file = self.told / notice.key
        try:
            self.told.mkdir(parents=True, exist_ok=True)
            file.touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError as error:
            self.failed = self.failed or str(error.strerror)
            return
        self.unsent.add(file)
        self.waiting.put(notice)

    def _work(self) -> None:
        while notice := self.waiting.get():
            if why := self.send(self.address, notice):
                self.failed = self.failed or why
            else:
                self.unsent.discard(self.told / notice.key)

    def problem(self) -> str:
        """One calm line, the first time only."""
        if not self.failed or self.shown:
            return ""
        self.shown = True
        return f"! a notification was not sent: {self.failed}   see: ./motley notify-test"

    def finish(self, limit_s: float) -> None:
        """The next follower may have better luck with what did not go out."""
        self.waiting.put(None)
        with contextlib.suppress(KeyboardInterrupt):  # who is waiting for it may leave
            self.thread.join(limit_s)
        if self.unsent:
            self.failed = self.failed or f"no answer within {limit_s:.0f} s"
        for file in list(self.unsent):
            file.unlink(missing_ok=True)


def told_in(state: Path, run: str) -> Path:
    return state / "told" / run


# -- the address -------------------------------------------------------------------------------------------------------


def unlocked(values: Mapping[str, Any]) -> str:
    """Inside Ansible, which has the vault's password or not."""
    try:
        return str(values.get(KEY) or "").strip()
    except Exception as locked:
        if "vault" not in str(locked).lower():
            raise
        raise BadInput(f"{LOCKED}./motley launch --vault ask   (ansible-playbook: --ask-vault-pass)") from None


def sent_by_nodes(nodes: Iterable[Mapping[str, Any]]) -> bool:
    return any(values.get(FROM) == "nodes" for values in nodes)


def for_node(values: Mapping[str, Any]) -> str:
    """What a launch brings to this node. Locked, it is bad input: the nodes could tell nobody."""
    return unlocked(values) if sent_by_nodes([values]) else ""


def plan_lines(nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = ", ".join(name for name, values in nodes.items() if for_node(values))
    return [f"  messages  the nodes send them: the address of {KEY} lies on {names} ({paths.NOTIFY}, 0600)"] * bool(
        names
    )


def address_of(inventory: Inventory, vault: str) -> str:
    """Empty where nothing is set."""
    written = next((values[KEY] for values in inventory.nodes.values() if KEY in values), "")
    if not isinstance(written, Vaulted):
        return ""  # the inventory's check refuses plain text
    ask = ["--ask-vault-pass"] if vault else []
    command = [str(Path(sys.executable).with_name("ansible-vault")), "decrypt", *ask, "--output", "-"]
    done = subprocess.run(command, input=written, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise BadInput(f"this password does not open {KEY}" if vault else f"{LOCKED}add --vault ask")
    return done.stdout.strip()


def for_follower(inventory: Inventory, run: str, vault: str) -> Notifier | None:
    """Nobody is told, and a line says so, where the vault stays locked."""
    if sent_by_nodes(inventory.nodes.values()):
        return None
    try:
        address = address_of(inventory, vault)
    except BadInput as locked:
        print(nobody(locked), file=sys.stderr, flush=True)
        return None
    return Notifier(address, told_in(inventory.state, run)) if address else None


def for_launch(state: Path, run: str, address: str) -> Notifier | None:
    """A new launch: whatever an older one of this name has told counts no more."""
    told = told_in(state, run)
    shutil.rmtree(told, ignore_errors=True)
    return Notifier(address, told) if address else None


def nobody(locked: BadInput) -> str:
    return f"· no messages are sent from here: {'   '.join(str(locked).splitlines())}"


class Pipe:
    """In a folder of this launch alone: its playbook hands the address over, and no disk holds it."""

    NAME = "notify"

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / self.NAME, 0o600)
        self.file = os.open(folder / self.NAME, os.O_RDWR | os.O_NONBLOCK)

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError):
            return os.read(self.file, 1 << 16).decode()
        return ""


def hand_over(address: str, folder: Path) -> None:
    """Writes the address into the folder's pipe; nothing where nobody reads, as with a launch of another version."""
    with contextlib.suppress(OSError):
        writer = os.open(folder / Pipe.NAME, os.O_WRONLY | os.O_NONBLOCK)
        os.write(writer, address.encode())
        os.close(writer)


# -- the test ----------------------------------------------------------------------------------------------------------


def test(inventory: Inventory, *, vault: str) -> int:
    """A message by this controller and, where they are to send, by each node."""
    if not (address := address_of(inventory, vault)):
        raise BadInput(f"{KEY} is not set: no messages are sent\nfix: docs/training.md#a-message-when-it-is-done")
    nodes = from_inventory(inventory) if sent_by_nodes(inventory.nodes.values()) else []
    width = max(len(name) for name in ("this controller", *(node.name for node in nodes)))

    def show(name: str, why: str, took: str = "") -> None:
        say(f"✗ {name:<{width}}  {why}" if why else f"✓ {name:<{width}}  sent{took}")

    began = time.monotonic()
    why = send(address, Notice("test", "motley", "this controller can send"))
    show("this controller", why, f" in {time.monotonic() - began:.1f} s")
    if not nodes:
        say("  it sends messages while ./motley launch or ./motley follow watches a run")
        return 1 if why else 0
    answers, silent = ask_all(nodes, lambda node: node.try_notify(address))
    found = silent | {name: str(answer["why"]) for name, answer in answers.items()}
    for node in nodes:
        show(node.name, found[node.name])
    say(f"  the node that hosts a run sends messages, or another that can ({FROM}: nodes); the controller does not")
    return 1 if any(found.values()) else 0
