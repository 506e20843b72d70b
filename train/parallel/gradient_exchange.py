"""Gradients that are exchanged in every step: those of unequal ranks become the gradient of the whole step.

Each rank back-propagates (Σ loss of its tokens) / (target tokens of the whole step), as engine/loop.py and
`Strategy.divisor` have it; the sum over all ranks is then exactly the gradient that one machine would have computed,
whatever the shares. Two methods, the same numbers:

    ddp   torch's DistributedDataParallel: travels while the backward pass still runs
    flat  one all-reduce of all gradients behind the backward pass
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from train.errors import BadInput
from train.models.backends import Batch, LossModule
from train.models.optimizer_step import Trained
from train.parallel.muon import Muon
from train.parallel.process_group import World
from train.parallel.strategy import Choice, StepTiming, Strategy
from train.parallel.worker_orders import Orders
from train.plan.speed.step_time import wire_for
from train.runlog.trace import COMPUTE, EXCHANGE

WIRES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PIECE = 1 << 20
"""Weights that gloo exchanges at a time: while some travel, others are converted. NCCL splits by itself."""
AHEAD = 4
"""Pieces that are under way: gloo sends two at a time, and the next ones are ready."""
BUCKETS = 4
"""The ddp exchanges of a step, more where they are larger than BUCKET_MB: one alone begins with the last gradient."""
BUCKET_MB = 4
"""The most of a ddp bucket: with torch's 25 MB an adapter of 16 MB travels only once its last gradient is there."""


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


def wait(work: Any) -> None:
    work.wait()


def all_reduce(tensors: list[Tensor], wire: str, finish: Callable[[Any], object] = wait) -> None:
    """Puts the sum of each over all ranks in its place, in one exchange. `finish` waits for a part of it."""
    flat = [tensor.flatten() for tensor in tensors]
    sent: deque[tuple[Any, Sequence[Tensor], list[Tensor]]] = deque()

    def arrived() -> None:
        work, travels, piece = sent.popleft()
        finish(work)
        torch._foreach_copy_(piece, travels)

    with record_function(EXCHANGE):
        for piece in pieces(flat, sum(map(len, flat)) if flat[0].is_cuda else PIECE):
            sent.append((*begun(piece, WIRES[wire]), piece))
            if len(sent) == AHEAD:
                arrived()
        while sent:
            arrived()
    for tensor, summed in zip(tensors, flat, strict=True):
        if not tensor.is_contiguous():  # what is flat of it is a copy
            tensor.copy_(summed.view_as(tensor))


def pieces(flat: list[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Cuts what stands behind one another every so many weights, wherever a tensor ends."""
    piece: list[Tensor] = []
    for tensor in flat:
        rest = tensor
        while len(rest):
            room = most - sum(map(len, piece))
            piece.append(rest[:room])
            rest = rest[room:]
            if room <= len(piece[-1]):
                yield piece
                piece = []
    if piece:
        yield piece


def begun(piece: list[Tensor], wire: torch.dtype) -> tuple[Any, Sequence[Tensor]]:
    """An exchange, and what travels of each: a copy, which may still be written to when the group has been left."""
    sizes = [len(part) for part in piece]
    flat = torch.empty(sum(sizes), dtype=wire, device=piece[0].device)
    travels = flat.split(sizes)
    torch._foreach_copy_(list(travels), piece)
    return dist.all_reduce(flat, async_op=True), travels


def fill_in(parameters: list[nn.Parameter]) -> None:
    """Gives a weight that no row here has reached the gradient 0, also alone: an optimizer passes over what has none,
    and elsewhere such a row may be."""
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad


class FlatSync:
    """The method `flat`; also for one process, and for a rank's own gradients, where nothing is exchanged."""

    kind = "flat"
    interrupted_exchange = False  # an out-of-memory cannot leave a collective half done

    def __init__(
        self,
        module: LossModule,
        parameters: list[nn.Parameter],
        wire: str,
        device: str,
        world: World | None = None,
        *,
        exchanges: bool = True,
    ) -> None:
        self.module, self.finish = module, world.finish if world else wait
        self.parameters = parameters
        self.wire = wire
        self.exchanges = exchanges and dist.is_initialized()
        self.watch = Stopwatch(device)

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        start = self.watch.mark()
        total = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)
        with record_function(COMPUTE):
            for batch in batches:
                loss = self.module(batch)
                (loss * weight).backward()
                total += loss.detach()
        computed = self.watch.mark()
        if batches or self.exchanges:
            fill_in(self.parameters)
        if self.exchanges:
            self._all_reduce()
        end = self.watch.mark()
        return StepTiming(total.item(), self.watch.between(start, computed), self.watch.between(computed, end))

    def _all_reduce(self) -> None:
        all_reduce([p.grad for p in self.parameters], self.wire, self.finish)


FLAT = "use sync=flat, where a layer is for some rows alone"
SYNC_BUFFERS = "forward_sync_buffers"
if SYNC_BUFFERS not in inspect.signature(DistributedDataParallel).parameters:
    SYNC_BUFFERS = "broadcast_buffers"  # its name in torch 2.10, of the set for driver 570


def bucket_mb(parameters: list[nn.Parameter]) -> float:
    """The size of a ddp bucket, in torch's MB of 2^20 bytes."""
    total_bytes: int = sum(p.numel() * p.element_size() for p in parameters)
    return min(BUCKET_MB, total_bytes / BUCKETS / 2**20)


class DdpSync:
    kind = "ddp"

    def __init__(
        self, module: LossModule, parameters: list[nn.Parameter], wire: str, device: str, world: World
    ) -> None:
        # init_sync would push the frozen base over the LAN at every start; what is trained has been broadcast already.
        self.ddp = DistributedDataParallel(
            module,
            init_sync=False,
            find_unused_parameters=False,
            bucket_cap_mb=bucket_mb(parameters),
            **{SYNC_BUFFERS: False},
        )
        # torch compares a hook's annotations with its own types; a lambda has none. And it holds what a hook is given,
        # which holds ddp: nobody would ever free them, and all buckets.
        self.ddp.register_comm_hook(weakref.proxy(self), lambda me, bucket: me._all_reduce(bucket))
        self.wire, self.nccl, self.orders = wire, world.nccl, world.orders or Orders.of_nobody()
        self.watch = Stopwatch(device)
        self.device = parameters[0].device
        self.computed: Any = None
        self.interrupted_exchange = False

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        start = self.watch.mark()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        todo: list[Batch | None] = list(batches) or [None]
        self.computed = None
        for i, batch in enumerate(todo):
            last = i == len(todo) - 1
            with nullcontext() if last else self.ddp.no_sync():
                loss = self.ddp(batch)
                self.interrupted_exchange = last
                (loss * weight).backward()
                total += loss.detach()
        if self.computed is None:  # torch says so in the next step, when the weights are changed
            raise BadInput("sync: ddp needs a gradient of each weight, and no row here has reached one", fix=FLAT)
        self.interrupted_exchange = False
        end = self.watch.mark()
        return StepTiming(
            total.item(), self.watch.between(start, self.computed), self.watch.between(self.computed, end)
        )

    def _all_reduce(self, bucket: Any) -> Any:
        """Sums one bucket of gradients. The last one of a step marks the end of the rank's own computing."""
        if bucket.is_last():
            self.computed = self.watch.mark()
        buffer = bucket.buffer()
        sent = buffer.to(WIRES[self.wire])
        work = dist.all_reduce(sent, async_op=True)
        if self.nccl:
            return work.get_future().then(lambda done: buffer.copy_(done.value()[0]))
        return self.orders.future(work, lambda: buffer.copy_(sent), on_card=sent.is_cuda)


Sync = FlatSync | DdpSync


def make(  # noqa: PLR0917 - as both of them
    kind: str, wire: str, module: LossModule, parameters: list[nn.Parameter], device: str, world: World
) -> Sync:
    chosen = DdpSync if kind == "ddp" and dist.is_initialized() else FlatSync
    return chosen(module, parameters, wire, device, world)


class ExactSync(Strategy):
    """ddp or flat. `auto` times both for a few steps each (they give the same numbers) and keeps the faster."""

    TRIAL_STEPS = 4  # the first of them warms up and is not counted

    def __init__(self, wanted: str, wire: str, module: LossModule, trained: Trained, world: World) -> None:
        super().__init__(trained)
        device = str(trained.parameters[0].device)
        self.world, self.wire = world, wire
        self._make = partial(make, wire=wire, module=module, parameters=trained.parameters, device=device, world=world)
        self._use(self._make("ddp" if wanted == "auto" else wanted))
        self._undecided = wanted == "auto" and dist.is_initialized()
        self.why = "both are tried in the first steps" if self._undecided else "as set"
        if not dist.is_initialized():
            self.why = "one process, nothing to exchange"
        self._seconds: list[float] = []
        self._ddp: tuple[Sync, float] | None = None

    @property
    def outlives_its_group(self) -> bool:
        """Whether its exchanges can be left: Muon's, and NCCL's, cannot."""
        return not (isinstance(self.trained.optimizer, Muon) or self.world.nccl)

    def leave_group(self) -> None:
        """Drops what hangs on the weights to exchange their gradients: it goes with its last holder."""
        del self._make, self.now, self._ddp

    def _use(self, sync: Sync) -> None:
        self.now, self.kind = sync, sync.kind

    @property
    def interrupted_exchange(self) -> bool:
        return self.now.interrupted_exchange

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        return self.now.gradients(batches, weight)

    def exchange(
        self, step: int, timing: StepTiming, norm: float, targets: Sequence[int], *, saving: bool
    ) -> StepTiming:
        optimizer = self.trained.optimizer
        if not isinstance(optimizer, Muon):
            return timing
        started = time.perf_counter()
        [[norm], *_] = self.world.numbers([norm])  # all clip by one
        optimizer.exchange(self.trained.clipping(norm), WIRES[self.wire])
        return replace(timing, blocked_s=timing.blocked_s + time.perf_counter() - started)

    def observe(self, timings: list[StepTiming]) -> list[StepTiming]:
        if self._undecided:
            self._seconds.append(max(t.compute_s for t in timings) + min(t.blocked_s for t in timings))
        return timings

    def forget_timings(self) -> None:
        self._seconds = []

    def decide(self) -> Choice | None:
        if len(self._seconds) < self.TRIAL_STEPS:
            return None
        measured, self._seconds = min(self._seconds[1:]), []
        if self._ddp is None:
            self._ddp, self.comparing = (self.now, measured), True
            self._use(self._make("flat"))
            return None
        ddp, ddp_s = self._ddp
        if ddp_s <= measured:
            self._use(ddp)
        self._undecided = self.comparing = False
        why = f"sync {self.kind}: measured: ddp {ddp_s:.3f} s a step, flat {measured:.3f} s"
        return Choice({"sync": self.kind}, why)


def choose_wire(wanted: str, world: World, parameters: list[nn.Parameter]) -> tuple[str, str]:
    """The wire, and why: fp32 keeps the sum exact; bf16 halves the traffic where that would take long."""
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
        world.finish(dist.all_reduce(sample, async_op=True))
        sample[0].item()
        seconds = max(row[0] for row in world.numbers([time.perf_counter() - start]))
    expected_s = seconds * total_bytes / (4 * sample.numel())
    why = f"{total_bytes / 1e6:.1f} MB of gradients would take {expected_s:.2f} s a step in fp32"
    return wire_for(expected_s), why
