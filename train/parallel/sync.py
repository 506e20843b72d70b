"""How gradients of unequal ranks become the gradient of the whole step.

Each rank back-propagates (Σ loss of its tokens) / (target tokens of the whole step); the sum over all ranks is then
exactly the gradient that one machine would have computed, whatever the shares. Two ways to add up, the same numbers:

    ddp   torch's DistributedDataParallel: travels while the backward pass still runs
    flat  one all-reduce of all gradients behind the backward pass

With `local` nothing is added up here: the ranks meet where a round of steps ends (local.py).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train.models.backends import Backend
from train.parallel.world import World
from train.plan.speedup import wire_for

Batch = dict[str, Tensor]


class Shell(nn.Module):  # type: ignore[misc]
    """The model as a function from a micro-batch to its summed loss. None stands for a rank without rows: a loss of
    zero that still touches every trainable weight, so that ddp's exchange happens without computing anything."""

    def __init__(self, model: nn.Module, loss_sum: Callable[[nn.Module, Batch], Tensor], autocast: Any = None) -> None:
        super().__init__()
        self.model = model
        self.loss_sum = loss_sum
        self.autocast = autocast or nullcontext

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            return torch.stack([(p * 0).sum() for p in self.model.parameters() if p.requires_grad]).sum()
        with self.autocast():
            return self.loss_sum(self.model, batch)


def make_shell(backend: Backend, model: nn.Module, precision: str, device: str) -> Shell:
    """The model behind a backend, computing in the run's precision."""
    if precision == "fp32":
        return Shell(model, backend.loss_sum)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return Shell(model, backend.loss_sum, partial(torch.autocast, torch.device(device).type, dtype))


@dataclass(frozen=True)
class Work:
    """What one rank did for one step."""

    loss_sum: float
    compute_s: float
    blocked_s: float
    """From the end of the own computing until the summed gradient was there: waiting and transfer."""
    ways_s: float = 0.0
    """Of it what the exchange of the ways of a round took; the rest is what a checkpoint needs beside them."""


class Stopwatch:
    """Seconds between marks, on the GPU's own clock where there is one: the host runs ahead of it."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device.startswith("cuda")

    def mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        if not self.on_gpu:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000


class FlatSync:
    """Also the sync of a world of one, where there is nothing to add, and of local steps."""

    def __init__(
        self, shell: Shell, parameters: list[nn.Parameter], wire: str, device: str, *, adds_up: bool = True
    ) -> None:
        self.kind = "flat" if adds_up else "local"
        self.adds_up = adds_up
        self.shell = shell
        self.parameters = parameters
        self.wire = wire
        self.watch = Stopwatch(device)
        self.interrupted_exchange = False  # an out-of-memory cannot leave a collective half done

    def step(self, batches: list[Batch], weight: float) -> Work:
        start = self.watch.mark()
        total = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)
        for batch in batches:
            loss = self.shell(batch)
            (loss * weight).backward()
            total += loss.detach()
        computed = self.watch.mark()
        if self.adds_up and dist.is_initialized():
            self._add_up()
        end = self.watch.mark()
        return Work(total.item(), self.watch.between(start, computed), self.watch.between(computed, end))

    def _add_up(self) -> None:
        for p in self.parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients]).to(WIRES[self.wire])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


SYNC_BUFFERS = "forward_sync_buffers"
if SYNC_BUFFERS not in inspect.signature(DistributedDataParallel).parameters:
    SYNC_BUFFERS = "broadcast_buffers"  # its name in torch 2.10, of the set for driver 570


class DdpSync:
    kind = "ddp"

    def __init__(self, shell: Shell, parameters: list[nn.Parameter], wire: str, device: str) -> None:
        # init_sync would push the frozen base over the LAN at every start; what is trained has been broadcast already.
        self.ddp = DistributedDataParallel(
            shell, init_sync=False, find_unused_parameters=False, **{SYNC_BUFFERS: False}
        )
        # torch compares a hook's annotations with its own types; a lambda has none.
        self.ddp.register_comm_hook(self, lambda me, bucket: me._exchange(bucket))
        self.wire = wire
        self.watch = Stopwatch(device)
        self.device = parameters[0].device
        self.computed: Any = None
        self.interrupted_exchange = False

    def step(self, batches: list[Batch], weight: float) -> Work:
        start = self.watch.mark()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        todo: list[Batch | None] = list(batches) or [None]
        for i, batch in enumerate(todo):
            last = i == len(todo) - 1
            with nullcontext() if last else self.ddp.no_sync():
                loss = self.ddp(batch)
                self.interrupted_exchange = last
                (loss * weight).backward()
                total += loss.detach()
        self.interrupted_exchange = False
        end = self.watch.mark()
        return Work(total.item(), self.watch.between(start, self.computed), self.watch.between(self.computed, end))

    def _exchange(self, bucket: Any) -> Any:
        """Adds one bucket up. The last call of a step marks the end of the own computing."""
        self.computed = self.watch.mark()
        buffer = bucket.buffer()
        sent = buffer.to(WIRES[self.wire])
        future = dist.all_reduce(sent, async_op=True).get_future()
        return future.then(lambda done: buffer.copy_(done.value()[0]))


WIRES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Sync = FlatSync | DdpSync


def make(kind: str, wire: str, shell: Shell, parameters: list[nn.Parameter], device: str) -> Sync:
    if kind == "ddp" and dist.is_initialized():
        return DdpSync(shell, parameters, wire, device)
    return FlatSync(shell, parameters, wire, device, adds_up=kind != "local")


class SyncChoice:
    """The sync in use. `auto` tries both for a few steps each (they give the same numbers) and keeps the faster."""

    TRIAL_STEPS = 4  # the first of them warms up and is not counted

    def __init__(self, wanted: str, wire: str, shell: Shell, parameters: list[nn.Parameter], device: str) -> None:
        self._make = partial(make, wire=wire, shell=shell, parameters=parameters, device=device)
        self.now: Sync = self._make("ddp" if wanted == "auto" else wanted)
        self.reason = "as set"
        if not dist.is_initialized():
            self.reason = "one process, nothing to add up"
        elif wanted == "auto":
            self.reason = ""
        self._seconds: list[float] = []
        self._ddp: tuple[Sync, float] | None = None

    @property
    def comparing(self) -> bool:
        """The second way is being tried and is compared with what the first took: nothing else should change."""
        return self._ddp is not None

    def begin_anew(self) -> None:
        """The steps so far are no measure of those that follow."""
        self._seconds = []

    def learn(self, seconds: float) -> None:
        """Called after each step with a figure that is the same on every rank, so that all ranks choose alike."""
        if self.reason:
            return
        self._seconds.append(seconds)
        if len(self._seconds) < self.TRIAL_STEPS:
            return
        measured = min(self._seconds[1:])
        if self._ddp is None:
            self._ddp, self.now, self._seconds = (self.now, measured), self._make("flat"), []
            return
        ddp, ddp_s = self._ddp
        if ddp_s <= measured:
            self.now = ddp
        self._ddp = None
        self.reason = f"measured: ddp {ddp_s:.3f} s a step, flat {measured:.3f} s"


def choose_wire(wanted: str, world: World, parameters: list[nn.Parameter]) -> tuple[str, str]:
    """fp32 keeps the sum exact; bf16 halves the traffic where that would take long."""
    if wanted != "auto":
        return wanted, "as set"
    if world.size == 1:
        return "fp32", "nothing travels"
    total_bytes = 4 * sum(p.numel() for p in parameters)
    sample = torch.ones(min(1_000_000, total_bytes // 4), device=parameters[0].device)
    seconds = 0.0
    for _ in range(2):  # the first opens the connections
        world.numbers([0.0])
        start = time.perf_counter()
        dist.all_reduce(sample)
        sample[0].item()
        seconds = max(row[0] for row in world.numbers([time.perf_counter() - start]))
    expected_s = seconds * total_bytes / (4 * sample.numel())
    found = f"{total_bytes / 1e6:.1f} MB of gradients would take {expected_s:.2f} s a step in fp32"
    return wire_for(expected_s), found
