"""One rank of the proof that all nodes compute together: how near an all-reduce comes to the slowest link.

    python -m train.measure.compute_together      started on every node at once (plugins/modules/collective_probe.py)

Rank 0 prints one line of JSON; with MOTLEY_PAIRS=1 it has the seconds of each pair of nodes too. Ranks exchange JSON
over the store: torch's own exchange of objects would execute what anybody on the network sends.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from train.measure import link
from train.plan.speed.step_time import ring_bytes

FLOATS = int(os.environ.get("MOTLEY_FLOATS", str(4 << 20)))  # 16 MiB, or as many as an adapter has
LASTS_S = float(os.environ.get("MOTLEY_LASTS_S", "1"))
WAIT = datetime.timedelta(seconds=60)
PAIRS = os.environ.get("MOTLEY_PAIRS") == "1"


def main() -> None:
    store, rank, world = next(dist.rendezvous("env://", timeout=WAIT))
    group_store = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group_store, rank=rank, world_size=world, timeout=WAIT)
    gather = gather_over(store, rank, world)
    link_mbit, _ = link.ring(gather, rank, os.environ["MOTLEY_ADDRESS"], turns=1)
    times_s = all_reduces(rank, world)
    pairs = pair_by_pair(gather, rank, world) if PAIRS and world > 2 else {}
    if rank == 0:
        took_s = statistics.median(times_s)
        ideal_s = ring_bytes(4 * FLOATS, world) * 8 / (link_mbit * 1e6)
        report = {"backend": "gloo", "world": world, "seconds": took_s, "times_s": times_s}
        report |= {"link_mbit": link_mbit, "percent_of_link": round(100 * ideal_s / took_s)}
        report |= {"megabytes": FLOATS * 4 / (1 << 20), "pairs": pairs}
        print("MOTLEY " + json.dumps(report), flush=True)  # before the teardown, which may fail without harm
    dist.barrier()
    dist.destroy_process_group()


def gather_over(store: dist.Store, rank: int, world: int) -> link.Gather:
    turns = itertools.count()

    def gather(value: Any) -> list[Any]:
        turn = next(turns)
        store.set(f"{turn}/{rank}", json.dumps(value))
        return [json.loads(store.get(f"{turn}/{other}")) for other in range(world)]

    return gather


def all_reduces(rank: int, world: int) -> list[float]:
    """Does as many as fit into a second, at least two; each is checked."""
    values = torch.empty(FLOATS)
    dist.all_reduce(torch.ones(1024))
    times_s: list[float] = []
    count = torch.tensor([2.0])
    while len(times_s) < int(count.item()):
        values.fill_(rank + 1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(values)
        times_s.append(time.perf_counter() - start)
        assert values.min() == values.max() == world * (world + 1) / 2, "the sum is wrong"
        if len(times_s) == 1:  # the same number everywhere: rank 0's clock decides
            count = torch.tensor([float(max(2, min(20, LASTS_S / times_s[0])))])
            dist.broadcast(count, 0)
    return times_s


def pair_by_pair(gather: link.Gather, rank: int, world: int) -> dict[str, float]:
    """ "0-1" → the seconds that those two take alone, the others idle."""
    values, mine = torch.ones(FLOATS), {}
    for one, other in itertools.combinations(range(world), 2):
        group = dist.new_group([one, other])
        dist.barrier()
        if rank in (one, other):
            dist.all_reduce(torch.ones(1024), group=group)
            start = time.perf_counter()
            dist.all_reduce(values, group=group)
            mine[f"{one}-{other}"] = time.perf_counter() - start
            values.fill_(1.0)
    report = gather(mine)
    return {pair: max(times[pair] for times in report if pair in times) for pair in {p for t in report for p in t}}


if __name__ == "__main__":
    main()
