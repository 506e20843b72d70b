"""The rented machine itself: proven before it is used, ended by itself when its time is nearly over, fetched from and
given back when its run has ended."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from console import processes
from console.fetch import RESULTS, fetch
from console.infra.node import MARK, Node, Silent, behind_mark, from_inventory
from console.inventory.check import check
from console.rent import give_back_from_home
from console.rent.clore import Clore
from console.rent.lease import Book, Lease, between, folder, now
from console.rent.market import Market
from console.rent.which_to_give_back import IDLE_S
from console.text_layout import say
from console.torchrun import script_view
from plugins.module_utils.motley.hostkeys import greets
from plugins.module_utils.motley.node_replies import Look
from train.errors import BadInput
from train.files import file_hash
from train.runlog import paths

ROOT = Path(__file__).parents[1]
PROVEN_S = 600.0
SSH_S = 180.0
LEAVES_S = 30


def prepare(lease: Lease) -> str:
    """Why it cannot be used; empty: it is proven."""
    if not answers(lease):
        return f"no SSH at {lease.host} port {lease.port} within {SSH_S:.0f} s"
    left = PROVEN_S - between(lease.born, now())
    log = folder() / "bootstrap.log"
    mark = {"MOTLEY_RENT": lease.mark}
    given = {"MOTLEY_ACCEPT_KEYS": "yes", "MOTLEY_PASSWORD": "", **mark}
    words = ["bootstrap", "--inventory", lease.inventory, "--nodes", lease.name]
    say(f"{lease.name}  setting it up and proving it: {left / 60:.0f} minutes at most")
    with log.open("w") as file:
        command = [sys.executable, "-m", "console", *words]
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | given, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            code = process.wait(max(1.0, left))
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            processes.end(f"MOTLEY_RENT={lease.mark}")
    if code == 0:
        return deadline_set(lease)
    last = "\n  ".join(log.read_text().strip().splitlines()[-6:])
    return "it was not proven within ten minutes" if code == -1 else f"bootstrap failed:\n  {last}"


def answers(lease: Lease) -> bool:
    deadline = time.monotonic() + SSH_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if greets(lease.host, lease.port, 3):
                return True
        time.sleep(1)
    return False


def node_of(lease: Lease) -> Node | None:
    inventory = check(Path(lease.inventory))
    return next((node for node in from_inventory(inventory) if node.name == lease.name), None)


def head_at_home() -> str:
    """The first node of inventory/homelab, where its owner has written one."""
    return next(iter(check(ROOT / "inventory/homelab").nodes), "")


def keeper_node(name: str) -> Node:
    """NODE of inventory/homelab, or FOLDER:NODE."""
    folder, _, short = name.rpartition(":")
    inventory = check(Path(folder or ROOT / "inventory/homelab"))
    for node in from_inventory(inventory):
        if node.name == short:
            return node
    names = ", ".join(inventory.nodes) or "none"
    raise BadInput(
        f"there is no node '{short}' in {inventory.path}: {names}", fix="fix: --keeper NODE, one that stays on"
    )


def kept_by(node: Node, market: Market, lease: Lease | None) -> give_back_from_home.Kept:
    """Whether that node gives it back; without a lease it tries whether it could."""
    assert isinstance(market, Clore)
    try:
        command = node.command([node.python, "-"])
    except Silent as why:
        return give_back_from_home.Kept(str(why))
    return give_back_from_home.arm(command, market, lease, left_s=lease.left_s(now()) if lease else 0.0)


def run_ends_s(lease: Lease) -> float:
    """When its run must end, which is before its time: what is saved is still to be fetched."""
    return max(0.0, lease.left_s(now()) - min(600.0, 360.0 * lease.hours))


def deadline_set(lease: Lease) -> str:
    """The machine saves and ends its run by itself, whoever is asleep by then."""
    node = node_of(lease)
    try:
        if node is None:
            return "it is in no inventory"
        node.stop_after(run_ends_s(lease))
    except Silent as why:
        return str(why)
    return ""


# -- the end ---------------------------------------------------------------------------------------------------------


def look(lease: Lease) -> str:
    """Why it goes back now: for its watcher, who asks again and again. Results are fetched first."""
    book = Book(folder())
    node = node_of(lease)
    if node is None:
        return ""
    try:
        status = node.status()
    except Silent:
        return ""
    if status["run"] and status["run"] != lease.run:
        book.change(lease, run=status["run"])
    if status["on"]:
        return ""
    with book.part(lease, "used") as nobody:  # a launch looks after it itself, and may bring a model for an hour
        if not nobody:
            return ""
        if status["run"]:
            return fetched(lease, status["run"])
        idle = between(lease.born, now()) > IDLE_S
        return f"no run was started within {IDLE_S / 60:.0f} minutes" if idle else ""


def settled(node: Node) -> Look:
    """A run that is done leaves within seconds; one that somebody only stopped watching is not waited for."""
    for _ in range(LEAVES_S):
        status = node.status()
        if not status["on"] or not said_its_end(status):
            break
        time.sleep(1)
    return status


def said_its_end(status: Look) -> bool:
    """Whether the run said its end: its events say so; a script (./motley torchrun) has none, but its agent says so."""
    if status["events"]:
        return bool(status["events"][-1]["event"] != "warning")
    return (status["now"] or {}).get("state") in script_view.ENDS


def fetched(lease: Lease, run: str) -> str:
    """Says that the run is fetched, once all is here and compared; else the machine stays while its time lasts."""
    try:
        whole = not fetch(check(Path(lease.inventory)), run, RESULTS) and checkpoint_brought(lease, run)
    except (OSError, Silent, TypeError, ValueError, tarfile.TarError):
        whole = False
    if not whole:
        say(f"{lease.name}  the results of {run} could not all be fetched: it stays, and Motley tries again")
        return ""
    return f"run {run} has ended and is fetched to results/{run}"


def checkpoint_brought(lease: Lease, run: str) -> bool:
    """Whether what an unfinished run can be resumed from was brought, by the hashes that were written with it."""
    node = node_of(lease)
    step = node.status()["checkpoint"] if node else 0
    if node is None or not step or any((RESULTS / run / made).is_dir() for made in ("adapter", "model")):
        return True
    name = f"step-{int(step)}"
    kept = RESULTS / run / "checkpoint" / name
    folder = shlex.quote(f"{paths.checkpoints(Path(node.home), run)}").replace("'~/", "~/'", 1)
    words = node.command(["sh", "-c", f"echo {shlex.quote(MARK)}; tar -C {folder} -cf - {name}"])
    with (
        behind_mark(subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:  # plain files of that folder alone; Debian 12's tarfile has no filters yet
            place = Path(member.name)
            if member.isfile() and place.parts[0] == name and ".." not in place.parts:
                (kept.parent / place).parent.mkdir(parents=True, exist_ok=True)
                with (kept.parent / place).open("wb") as file:
                    shutil.copyfileobj(archive.extractfile(member), file)  # type: ignore[arg-type]
    hashes = dict(json.loads((kept / "manifest.json").read_text()))
    say(f"  checkpoint  {kept}   (the run is not done: docs/renting.md#a-run-that-was-not-done)")
    return all(file_hash(kept / file) == known for file, known in hashes.items())
