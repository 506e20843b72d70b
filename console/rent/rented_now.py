"""The machines that are rented now, as an inventory has them: from the leases on this controller, without key or
network. One whose time is over is none."""

from __future__ import annotations

from pathlib import Path

from console.rent.lease import HELD, READY, Book, folder, now

PREFIX = "rented-"


def hosts(place: Path | None = None) -> dict[str, dict[str, object]]:
    place, at = place or folder(), now()
    living = [
        lease for lease in Book(place).leases() if lease.state in (HELD, READY) and lease.host and lease.left_s(at) > 0
    ]
    return {
        lease.name: {
            "ansible_host": lease.host,
            "ansible_port": lease.port,
            "ansible_user": "root",
            "motley_address": "127.0.0.1",  # alone in its run: nobody else is to reach its agent
            "motley_gpu": lease.gpu,
            "motley_state": str(place),
        }
        for lease in living
    }
