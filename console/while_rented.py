"""What every command does for a machine that is rented: it looks at the market, launches there, and gives it back."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from console.inventory.check import check
from console.inventory.read import Inventory
from console.rent import lease as leases
from console.rent import rented_now
from console.rent.known_key import KEY, known_key
from console.rent.lease import Book, Lease
from console.text_layout import beside_data, say
from train.errors import BadInput

EVERY_S = 60.0
"""How often the commands that are not about renting look at the market."""


def before_any(verb: str) -> None:
    """Looks at the market, where a key is at hand; this is never an error of the command itself."""
    book, secret = Book(leases.folder()), known_key()
    living = book.leases()
    if not (secret or living) or verb in ("rent", "rented", "give-back"):
        return
    if living and not secret:
        say(f"{living[0].name} is rented: {KEY} is not set, so nothing looks after it here", file=sys.stderr)
        return
    stamp = book.place / "looked"
    with contextlib.suppress(OSError):
        if time.time() - stamp.stat().st_mtime < EVERY_S:
            return
    from console.rent import shop, watcher  # noqa: PLC0415  only where something is rented_now, or may be
    from console.rent.compare_and_give_back import reconcile  # noqa: PLC0415

    with contextlib.suppress(OSError, BadInput):
        book.place.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp.touch()
        try:
            lines = reconcile(shop.market(secret, timeout_s=4.0), book)
        except Exception as why:
            lines = [f"{living[0].name} is rented, and the market does not answer: {why}"] if living else []
        for line in lines:
            say(line, file=sys.stderr)
        for lease in book.leases():
            with book.part(lease, "watched") as nobody:
                pass
            if nobody:
                watcher.start(lease, secret, book.place)


@contextlib.contextmanager
def used(inventory: Inventory, *, as_json: bool = False) -> Iterator[None]:
    """Stands around a launch: when a run on a rented machine has ended, it is fetched and given back."""
    book = Book(leases.folder())
    lease = next((lease for lease in book.leases() if lease.name in inventory.nodes), None)
    if lease is None:
        yield
        return
    with book.part(lease, "used"):
        yield
        with beside_data(as_json=as_json):
            end_of_use(book, lease)


def end_of_use(book: Book, lease: Lease) -> None:
    from console import rented_machine  # noqa: PLC0415  only where something is rented
    from console.infra.node import Silent  # noqa: PLC0415
    from console.rent import shop, wording  # noqa: PLC0415
    from console.rent.compare_and_give_back import want_back  # noqa: PLC0415
    from console.rent_commands import gone_back  # noqa: PLC0415

    node = rented_machine.node_of(lease)
    try:
        status = rented_machine.settled(node) if node else {"on": False, "run": ""}
    except Silent as why:
        say(f"{lease.name}  {why}: its watcher looks again; back at {wording.clock(lease.until)} in any case")
        return
    if status["on"]:
        say(f"{lease.name}  when {status['run']} has ended, its watcher fetches it and gives the machine back")
    elif not status["run"]:
        say(f"{lease.name}  no run was started; it is yours until {wording.clock(lease.until)}: ./motley give-back")
    elif ended := rented_machine.fetched(book.change(lease, run=status["run"]), str(status["run"])):
        back = want_back(book, lease, ended)
        if secret := known_key():
            gone_back(shop.market(secret), book, back)
        else:
            say(f"{lease.name}  its watcher gives it back now: ./motley rented shows the bill")


def inventory_of(nodes: str, inventory: str) -> str:
    """launch --nodes rented-1000 means the inventory of leases; machines at home and rented ones do not mix."""
    names = nodes.replace(",", " ").split()
    far = [name for name in names if name.startswith(rented_now.PREFIX)]
    if not far or set(names) <= set(check(Path(inventory)).nodes):
        return inventory
    if len(far) < len(names):
        raise BadInput(
            f"{far[0]} cannot train together with machines at home: its ports are not reachable from here",
            fix=f"fix: --nodes {far[0]} alone; docs/renting.md#home-and-rented-in-one-run",
        )
    return "inventory/rented"
