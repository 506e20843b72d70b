"""An exchange of the cards that ends without its peer: nothing raises, and whoever asks afterwards is told."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place, Verdict, together, told

LIMIT_S = 2.0
BUSY_CYCLES = 12_000_000_000
"""Some six seconds of a card, before it comes to the exchange: for NCCL's own thread as if a peer never came."""


def measure(place: Place) -> Figures:
    return dict(runs.apart(place, lambda: fails(place.device)))


def fails(device: str) -> Figures:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import ErrorType

    from train.parallel.process_group import World, prepare_nccl

    world = World(rank=0, size=1, node="node-0")
    if device == "cpu":  # what a card's group would say, by a stand-in
        torch.cuda.synchronize = lambda *_: None
        errors = iter([ErrorType.SUCCESS, ErrorType.TIMEOUT])
        world.nccl = SimpleNamespace(get_error=lambda: next(errors))
        return {"before": world._exchange_failed(), "after": world._exchange_failed(), "sum": 1.0}
    prepare_nccl()
    limit = timedelta(seconds=LIMIT_S)
    store = dist.HashStore()
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1, timeout=limit)
    ones = torch.ones(1 << 18, device=device)
    dist.all_reduce(ones)
    world.nccl = dist.distributed_c10d._get_default_group()._get_backend(torch.device(device))
    before, began = world._exchange_failed(), time.monotonic()
    torch.cuda._sleep(BUSY_CYCLES)
    dist.all_reduce(ones)
    after = world._exchange_failed()
    return {"before": before, "after": after, "sum": ones.mean().item(), "seconds": round(time.monotonic() - began, 1)}


def judge(values: Figures) -> Verdict:
    return together(
        (not values["before"], "a whole exchange is none that failed"),
        told(values["after"], "one that its limit ended is told", "nobody is told that it failed"),
    )


LINES = (
    Line(
        "exchange-fails",
        "an exchange of the cards that NCCL's own thread ends: the process lives, and applies nothing of it",
        measure,
        judge,
        needs=(),
    ),
)
