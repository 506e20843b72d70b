"""What Motley knows of a rented machine: a file, on the disk before the order is sent, and until its bill has ended.

Every call to the system that touches a lease is made here, one after another without buffers, so that a test can end
the process before each of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from train.errors import BadInput

ROOT = Path(__file__).parents[2]
ORDERING, HELD, READY, RETURNING = "ordering", "held", "ready", "returning"
RENTING = "renting.lock"
LONGEST_H = 1000
BILL = {"order", "gpu", "usd_h", "began", "ended", "usd_at_most", "why", "balance_before", "balance_after"}
"""What is shown of a receipt."""


def folder() -> Path:
    """The folder of all leases of this controller, and of the key that opens rented machines and nothing else."""
    return Path(os.environ.get("MOTLEY_RENTED") or ROOT / ".motley/rented").resolve()


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    wall: float
    up: float
    """Since the machine was started, asleep or not: no clock that is set moves it."""
    boot: str


def now() -> Moment:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Moment(wall=time.time(), up=time.clock_gettime(time.CLOCK_BOOTTIME), boot=boot)


def between(earlier: Moment, later: Moment) -> float:
    """Seconds. After a restart only the clock can tell; if that has gone back since, all time is over."""
    if earlier.boot == later.boot:
        return later.up - earlier.up
    return later.wall - earlier.wall if later.wall >= earlier.wall else float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    mark: str
    market: str
    state: str
    """ordering: the order may be made; held: it is; ready: the machine is proven; returning: wanted back."""
    server: int
    gpu: str
    usd_h: float
    """The price of an hour, with the fee."""
    currency: str
    hours: float
    born: Moment
    before: tuple[int, ...] = ()
    """Orders that there were before this one."""
    order: int = 0
    host: str = ""
    port: int = 0
    why: str = ""
    """Why it is given back."""
    balance: dict[str, float] = field(default_factory=dict)
    """What the account held before."""
    inventory: str = ""
    """The folder in which it is a machine."""
    run: str = ""
    """Seen there last."""

    @property
    def name(self) -> str:
        return f"rented-{self.order or self.mark[-4:]}"

    @property
    def until(self) -> float:
        """When its time is over, by the wall clock of when it was ordered."""
        return self.born.wall + self.hours * 3600

    @property
    def usd_at_most(self) -> float:
        return self.hours * self.usd_h

    def left_s(self, at: Moment) -> float:
        return self.hours * 3600 - between(self.born, at)

    def usd_until(self, at: Moment) -> float:
        """Nobody is billed for what a clock that was set has skipped."""
        seconds = between(self.born, at)
        return self.usd_h * (seconds if seconds < float("inf") else self.hours * 3600) / 3600


def owner() -> str:
    """Begins the mark of each order of this checkout, also when all leases are lost. Another's differs, also where two
    machines were made of one image: it is drawn once, and lies beside the folder of leases."""
    file = folder().with_name(f"{folder().name}.owner")
    if not file.exists():
        os.makedirs(file.parent, mode=0o700, exist_ok=True)  # noqa: PTH103
        draft = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
        draft.write_text(f"motley-{os.urandom(4).hex()}\n")
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(draft)
        draft.unlink()
    name = file.read_text().strip()
    if not re.fullmatch("motley-[0-9a-f]{8}", name):  # an empty one would begin the mark of everybody's orders
        raise BadInput(f"{file} is damaged", fix=f"fix: rm {file}, then ./motley rented")
    return name


def new_mark() -> str:
    return f"{owner()}-{os.urandom(6).hex()}"


class Book:
    """The folder of leases, one file each, and a receipt for each that has ended."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.receipts = place / "bills"

    def leases(self) -> list[Lease]:
        found = (self.read(file.stem) for file in sorted(self.place.glob("motley-*.json")))
        return [lease for lease in found if lease]

    def read(self, mark: str) -> Lease | None:
        """A file that is no lease is none: its order, if there is one, has no lease, and goes back. Neither is one that
        would never end."""
        try:
            known = json.loads((self.place / f"{mark}.json").read_bytes())
            known |= {"born": Moment(**known["born"]), "before": tuple(known["before"])}
            lease = Lease(**known)
            ends = 0 < lease.hours < LONGEST_H and lease.left_s(now()) < float("inf") and lease.usd_h >= 0
            return lease if ends else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, lease: Lease) -> None:
        _write(self.place, f"{lease.mark}.json", asdict(lease))

    def change(self, lease: Lease, **what: Any) -> Lease:
        """What others have written since it was read stays; what is wanted back stays so, and what has ended."""
        with _locked(self.place / f"{lease.mark}.lock", wait=True):
            current = self.read(lease.mark)
            if current is None and self.receipt(lease.mark):
                return replace(lease, state=RETURNING)
            current = current or lease
            changed = replace(current, **what)
            if current.state == RETURNING:
                changed = replace(changed, state=RETURNING, why=current.why)
            if changed != self.read(lease.mark):
                self.write(changed)
            return changed

    def close(self, lease: Lease, why: str, at: Moment, balance: dict[str, float], *, sure: bool) -> None:
        """The receipt first: whoever is stopped in between writes the same one again. `sure`: nothing can live on."""
        receipt = {
            "mark": lease.mark, "order": lease.order, "market": lease.market, "gpu": lease.gpu, "usd_h": lease.usd_h,
            "began": lease.born.wall, "ended": at.wall, "usd_at_most": lease.usd_until(at) if lease.order else 0.0,
            "why": why, "run": lease.run, "balance_before": lease.balance, "balance_after": balance,
            "sure": sure,
        }  # fmt: skip
        if self.receipt(lease.mark) is None:
            _write(self.receipts, f"{lease.mark}.json", receipt)
        for end in ("json", "lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.place / f"{lease.mark}.{end}")  # noqa: PTH108

    def receipt(self, mark: str) -> dict[str, object] | None:
        """None where there is none, or one that says nothing of a bill."""
        try:
            known = dict(json.loads((self.receipts / f"{mark}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        return known if known.keys() >= BILL else None

    def in_doubt(self, mark: str) -> bool:
        """Whether its order is in doubt: it may be made late, or the market may only have forgotten it."""
        return not (self.receipt(mark) or {}).get("sure", True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While one command rents, no other does. The lock ends with its process, however that ends."""
        with _locked(self.place / RENTING) as free:
            if not free:
                raise BadInput("another command is renting just now\nfix: ./motley rented, when it is done")
            yield

    def renting(self) -> bool:
        if not (self.place / RENTING).exists():
            return False
        with _locked(self.place / RENTING) as free:
            return not free

    @contextlib.contextmanager
    def part(self, lease: Lease, name: str) -> Iterator[bool]:
        """Whether this process is the one that does this for the lease (watch it, finish it)."""
        with _locked(self.place / f"{lease.mark}.{name}") as free:
            yield free


@contextlib.contextmanager
def _locked(file: Path, *, wait: bool = False) -> Iterator[bool]:
    os.makedirs(file.parent, mode=0o700, exist_ok=True)  # noqa: PTH103
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def _write(place: Path, name: str, facts: dict[str, object]) -> None:
    """Whole or not at all, and on the disk when it returns."""
    os.makedirs(place, mode=0o700, exist_ok=True)  # noqa: PTH103
    draft = place / f".{name}.{os.getpid()}"
    content = json.dumps(facts, indent=1).encode()
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)
    finally:
        os.close(file)  # a watcher tries again on a full disk, thousands of times
    os.replace(draft, place / name)  # noqa: PTH105
    above = os.open(place, os.O_RDONLY)
    os.fsync(above)
    os.close(above)
