"""One rank of the proof: how fast the slowest link is, and how near an all-reduce comes to it; on request pair by pair.

Started on every node (plugins/modules/collective_probe.py); rank 0 prints one line of JSON. Ranks exchange JSON over
the store: torch's own exchange of objects would execute what anybody on the network sends.
"""

import datetime
import itertools
import json
import os
import socket
import statistics
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

FLOATS = int(os.environ.get("MOTLEY_FLOATS", str(4 << 20)))  # 16 MiB, or as many as an adapter has
LINK_BYTES = 16 << 20
LASTS_S = float(os.environ.get("MOTLEY_LASTS_S", "1"))
WAIT = datetime.timedelta(seconds=60)
PAIRS = os.environ.get("MOTLEY_PAIRS") == "1"


def main() -> None:
    store, rank, world = next(dist.rendezvous("env://", timeout=WAIT))
    group_store = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group_store, rank=rank, world_size=world, timeout=WAIT)
    rates = gather(store, rank, world, "rate", slowest_neighbour_mbit(store, rank, world))
    times_s = all_reduces(rank, world)
    pairs = pair_by_pair(store, rank, world) if PAIRS and world > 2 else {}
    if rank == 0:
        link_mbit, took_s = min(rates), statistics.median(times_s)
        ideal_s = 2 * (world - 1) / world * FLOATS * 4 * 8 / (link_mbit * 1e6)
        report = {"backend": "gloo", "world": world, "seconds": took_s, "times_s": times_s}
        report |= {"link_mbit": link_mbit, "percent_of_link": round(100 * ideal_s / took_s)}
        report |= {"megabytes": FLOATS * 4 / (1 << 20), "pairs": pairs}
        print("MOTLEY " + json.dumps(report), flush=True)  # before the teardown, which may fail without harm
    dist.barrier()
    dist.destroy_process_group()


def gather(store: dist.Store, rank: int, world: int, name: str, value: Any) -> list[Any]:
    """The value of each rank, in rank order."""
    store.set(f"{name}/{rank}", json.dumps(value))
    return [json.loads(store.get(f"{name}/{other}")) for other in range(world)]


def slowest_neighbour_mbit(store: dist.Store, rank: int, world: int) -> float:
    """Everybody sends to the next one at the same time over plain TCP: the speed at which it arrives here."""
    with socket.create_server((os.environ["MOTLEY_ADDRESS"], 0)) as door:
        places = gather(store, rank, world, "place", door.getsockname()[:2])
        sender = threading.Thread(target=send, args=(tuple(places[(rank + 1) % world]),))
        sender.start()
        line, _ = door.accept()
        buffer, got, start = bytearray(1 << 20), 0, None
        with line:
            while count := line.recv_into(buffer):
                start = start or time.perf_counter()
                got += count
        took_s = time.perf_counter() - (start or 0)
        sender.join()
    return got * 8 / took_s / 1e6


def send(place: tuple) -> None:
    with socket.create_connection(place, timeout=30) as line:
        line.sendall(bytes(LINK_BYTES))


def all_reduces(rank: int, world: int) -> list[float]:
    """As many as fit into a second, at least two; each is checked."""
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


def pair_by_pair(store: dist.Store, rank: int, world: int) -> dict[str, float]:
    """ "0-1" → the seconds that those two take alone, the others idle; sent to rank 0."""
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
    report = gather(store, rank, world, "times", mine)
    return {pair: max(times[pair] for times in report if pair in times) for pair in {p for t in report for p in t}}


if __name__ == "__main__":
    main()
