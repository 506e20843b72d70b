"""`python -m train bench collectives`: what each exchange between processes takes, and whether what arrives is right.

All-reduce, broadcast, all-gather and reduce-scatter over sizes, and the barrier. Beside them, in the same run, the link
itself (link.py). The least that a collective could take is the bytes that each process must receive, at the speed of
the slowest of these links.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, TypedDict

from train.errors import CheckFailed
from train.measure import link
from train.plan.speed.step_time import ring_bytes

RING_TURNS = 3
LATE_S = 0.05
"""How late one process comes to the barrier that is to hold the others."""
PATTERN = 251
"""After how many values the pattern repeats: each sum of them is exact in fp32."""


class MeasuredCollective(TypedDict):
    collective: str
    mb: float
    seconds: float
    limit_s: float
    """What the link would take at least."""


class Measured(TypedDict):
    link_mbit: float
    round_trip_s: float
    rows: list[MeasuredCollective]
    barrier_s: float


def needed_bytes(name: str, size: int, world: int) -> float:
    """What the slowest link must carry at least, in one direction."""
    part = (world - 1) / world * size
    return {"all-reduce": ring_bytes(size, world), "broadcast": float(size)}.get(name, part)


def bench(world: Any, sizes: list[int], repeats: int, device: str) -> Measured:
    link_mbit, round_trip_s = link.ring(world.gather, world.rank, link.own_address(), turns=RING_TURNS)
    rows: list[MeasuredCollective] = []
    for size in sizes:
        count = max(1, size // 4 // world.size) * world.size  # as many for each process
        for name, case in cases(world, count, device).items():
            seconds = [timed(world, *case, f"{name} of {4 * count / 1e6:g} MB") for _ in range(repeats + 1)]
            median = statistics.median(seconds[1:])
            limit_s = needed_bytes(name, 4 * count, world.size) * 8 / (link_mbit * 1e6)
            rows.append({"collective": name, "mb": 4 * count / 1e6, "seconds": median, "limit_s": limit_s})
    barrier_s = barrier(world, repeats)
    return {"link_mbit": link_mbit, "round_trip_s": round_trip_s, "rows": rows, "barrier_s": barrier_s}


# -- each of them, and what must come of it ----------------------------------------------------------------------------

Case = tuple[Callable[[], None], Callable[[], object], Callable[[], bool]]
"""Sets up, exchanges, and says whether the values are right."""


def cases(world: Any, count: int, device: str) -> dict[str, Case]:
    import torch
    import torch.distributed as dist

    rank, size = world.rank, world.size
    pattern = (torch.arange(count, device=device) % PATTERN).float()
    mine = slice(rank * count // size, (rank + 1) * count // size)
    data, part = torch.empty_like(pattern), torch.empty(count // size, device=device)
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # torch 2.13's new names
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    all_of = size * (size + 1) / 2  # the sum of rank + 1

    def own() -> None:
        data.copy_(pattern * (rank + 1))

    def own_part() -> None:
        data.zero_()
        part.copy_(pattern[mine] + rank)

    def gathered() -> bool:
        ranks = torch.arange(size, device=device).repeat_interleave(count // size)
        return bool(torch.equal(data, pattern + ranks))

    return {
        "all-reduce": (own, lambda: dist.all_reduce(data), lambda: torch.equal(data, pattern * all_of)),
        "broadcast": (own, lambda: dist.broadcast(data, size - 1), lambda: torch.equal(data, pattern * size)),
        "all-gather": (own_part, lambda: all_gather(data, part), gathered),
        "reduce-scatter": (own, lambda: reduce_scatter(part, data), lambda: torch.equal(part, pattern[mine] * all_of)),
    }


def timed(
    world: Any, prepare: Callable[[], None], exchange: Callable[[], object], right: Callable[[], bool], what: str
) -> float:
    """Seconds of the slowest process; CheckFailed on all of them where any has wrong values."""
    prepare()
    synchronize()
    world.numbers([0.0])  # all start together
    start = time.perf_counter()
    exchange()
    synchronize()
    took_s = time.perf_counter() - start
    reports = world.numbers([took_s, float(right())])
    if wrong := [str(rank) for rank, (_, good) in enumerate(reports) if not good]:
        raise CheckFailed(f"{what}: the values on rank {', '.join(wrong)} are wrong")
    return float(max(seconds for seconds, _ in reports))


def synchronize() -> None:
    """Waits for the GPU, which is done only then."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def barrier(world: Any, repeats: int) -> float:
    """The median seconds of a barrier; CheckFailed where it lets somebody go before the last has come."""
    import torch.distributed as dist

    seconds = []
    for turn in range(repeats + 1):
        world.numbers([0.0])
        start = time.perf_counter()
        dist.barrier()
        seconds.append(max(row[0] for row in world.numbers([time.perf_counter() - start])))
        late = turn % world.size
        world.numbers([0.0])
        start = time.perf_counter()
        if world.rank == late:  # the others do not even yield: on a busy machine sleep(0) takes as long
            time.sleep(LATE_S)
        dist.barrier()
        waited = [row[0] for row in world.numbers([time.perf_counter() - start])]
        if early := [str(rank) for rank, waited_s in enumerate(waited) if waited_s < LATE_S / 2]:
            raise CheckFailed(f"barrier: rank {', '.join(early)} passed it before rank {late} had come")
    return float(statistics.median(seconds[1:]))


# -- the table ---------------------------------------------------------------------------------------------------------


def text(found: Measured, processes: int, backend: str) -> list[str]:
    trip_ms = found["round_trip_s"] * 1e3
    names = list(dict.fromkeys(row["collective"] for row in found["rows"]))
    table = {(row["mb"], row["collective"]): row for row in found["rows"]}
    lines = [
        f"{processes} processes, {backend}; the link: {found['link_mbit']:.0f} Mbit/s by plain TCP around the ring, "
        f"round trip {trip_ms:.2f} ms",
        f"{'MB':>9}" + "".join(f"{name:>24}" for name in names),
    ]
    for mb in dict.fromkeys(row["mb"] for row in found["rows"]):
        cells = [cell(table[mb, name]) for name in names]
        lines.append(f"{mb:9.3f}" + "".join(f"{words:>24}" for words in cells))
    barrier_ms = found["barrier_s"] * 1e3
    return [
        *lines,
        f"  barrier {barrier_ms:8.2f} ms, {barrier_ms / trip_ms:.0f} round trips",
        "each: time, and the part of the link's limit that it reaches; all values were compared and are right",
    ]


def cell(row: MeasuredCollective) -> str:
    return f"{row['seconds'] * 1e3:.2f} ms {row['limit_s'] / row['seconds']:5.0%}"
