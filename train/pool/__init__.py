"""Work that comes in pieces: each machine takes them by itself, as many as it can, and nothing crosses the network but
who has which and what came of it. A recipe says what a piece is (recipes/generate, evaluate, sweep); the rest is here.

pieces.py           a piece, who has it, what came of it; and the list that a group shares
record.py           what is done, on the disk of each machine
hand_out_pieces.py  a process in a group: it takes pieces from the list and brings what came of them
piece_thread.py     the thread that does one piece after the other
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from train.pool.pieces import Done, Known, Piece

if TYPE_CHECKING:
    from train.pool.piece_thread import Desk


class PoolRecipe(Protocol):
    @property
    def total(self) -> int | None:
        """All pieces, where that is known."""

    def load(self, desk: Desk) -> None:
        """Loads what a piece needs; the other machines begin meanwhile."""

    def next(self, known: Known) -> Piece | None:
        """The next piece that nobody has, for this machine; None: there is none for it now. It follows from what is
        known and from the settings alone, as any machine may be asked."""

    def is_over(self, known: Known) -> bool: ...

    # data: str, where pieces are made of some: its hash, once it is loaded
    # may_take(piece) -> bool, where not every machine can do every piece: whether this one can

    def work(self, piece: Piece, desk: Desk) -> dict[str, Any]:
        """What comes of it, as JSON. Where it is stopped it may return anything soon."""

    def words(self, done: Done) -> str:
        """What came of it, in a few words for who watches."""

    def finish(self, known: Known) -> Path:
        """Writes what the run has made, the same on every machine."""

    def close(self) -> None:
        """Ends what it has started."""
