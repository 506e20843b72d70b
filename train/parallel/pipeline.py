"""A model cut over machines: each rank of a pipe has some layers, and the rows go through all of them.

    Stage      one rank's layers with its neighbours: forward, or one step in the order 1F1B
    PipeSync   its gradients, and those of workers that hold the whole model, combined as always

No shape is sent: every rank has the prepared rows. Hidden states travel from main memory over gloo, all receives are
posted when a step begins. 1F1B: a stage goes as many micro-batches ahead as stages are behind it, and takes a backward
pass as soon as it can. A frozen base has no gradients of weights, so nothing fancier would gain.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import record_function

from train.models import row_noise
from train.models.backends import Batch, LossModule, autocast
from train.models.hf import DTYPES, loss_of_states, whole_of
from train.models.optimizer_step import Trained
from train.models.wrapper import text_of
from train.parallel.gradient_exchange import all_reduce, fill_in
from train.parallel.row_takers import RowTakers
from train.parallel.strategy import Choice, StepTiming, Strategy
from train.runlog.trace import COMPUTE, EXCHANGE

MEASURED = 5
"""Steps after which the speed of each stage is kept."""
CHANGED = 0.15
"""A speed that moved by more is kept again."""
Awaited = tuple[Any, Tensor] | None


class Stage:
    def __init__(self, model: nn.Module, group: tuple[int, ...], rank: int, precision: str, device: str) -> None:
        whole = whole_of(model)
        self.model, self.device, self.precision = model, device, precision
        self.part, self.backbone = whole.part, whole.get_decoder()
        self.width, self.dtype = whole.config.hidden_size, DTYPES[precision]
        position = group.index(rank)
        self.before = group[position - 1] if position else None
        self.after = group[position + 1] if position + 1 < len(group) else None
        self.behind = len(group) - position - 1
        self.cost = self.part.end - self.part.first + (head_cost(model) if self.part.ends else 0.0)
        """What a row costs this stage, in layers."""
        self.computing_s = 0.0

    # -- forward alone, for an evaluation ------------------------------------------------------------------------------

    def loss_sum(self, _: nn.Module, batch: Batch) -> Tensor:
        """The summed loss, on the last stage; the others have none."""
        out = self.forward(batch, self.arrived(self.await_from(batch, self.before, 0)))
        if self.after is None:
            return out
        for sent, _kept in self.send(out, self.after, 0):
            sent.wait()
        return torch.zeros((), device=self.device)

    def forward(self, batch: Batch, hidden: Tensor | None) -> Tensor:
        """Hidden states, or the summed loss."""
        start = time.perf_counter()
        with autocast(self.precision, self.device), record_function(COMPUTE):
            out: Tensor = self.part.states(self.backbone, row_noise.of_rows(self.model, batch), hidden)
            if self.part.ends:
                out = loss_of_states(self.model, out, batch)
        self._count(start)
        return out

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self, batches: list[Batch], weight: float) -> float:
        """Forward and backward of all micro-batches; the summed loss, on the last stage."""
        came = [self.await_from(batch, self.before, 2 * i) for i, batch in enumerate(batches)]
        back = [self.await_from(batch, self.after, 2 * i + 1) for i, batch in enumerate(batches)]
        sent: list[tuple[Any, Tensor]] = []
        held: dict[int, tuple[Tensor | None, Tensor]] = {}
        total, ahead = 0.0, min(self.behind, len(batches))
        for i in range(len(batches) + ahead):
            if i < len(batches):
                hidden = self.arrived(came[i])
                held[i] = hidden, self.forward(batches[i], hidden)
                sent += self.send(held[i][1], self.after, 2 * i)
            if i >= ahead:
                hidden, out = held.pop(i - ahead)
                total += self.backward(out, weight, self.arrived(back[i - ahead]))
                sent += self.send(hidden.grad if hidden is not None else None, self.before, 2 * (i - ahead) + 1)
        for work, _ in sent:
            work.wait()
        return total

    def backward(self, out: Tensor, weight: float, gradient: Tensor | None) -> float:
        start = time.perf_counter()
        with record_function(COMPUTE):
            if self.part.ends:
                (out * weight).backward()
            else:
                assert gradient is not None
                out.backward(gradient.detach())
        self._count(start)
        return out.item() if self.part.ends else 0.0

    def _count(self, start: float) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        self.computing_s += time.perf_counter() - start

    # -- what travels --------------------------------------------------------------------------------------------------

    def await_from(self, batch: Batch, rank: int | None, tag: int) -> Awaited:
        if rank is None:
            return None
        buffer = torch.empty(*batch["input_ids"].shape, self.width, dtype=self.dtype)
        return dist.irecv(buffer, rank, tag=tag), buffer

    def arrived(self, awaited: Awaited) -> Tensor | None:
        if awaited is None:
            return None
        with record_function(EXCHANGE):
            awaited[0].wait()
        return awaited[1].to(self.device).requires_grad_()

    def send(self, tensor: Tensor | None, rank: int | None, tag: int) -> list[tuple[Any, Tensor]]:
        if rank is None or tensor is None:
            return []
        out = tensor.detach().to("cpu", self.dtype).contiguous()
        return [(dist.isend(out, rank, tag=tag), out)]


def head_cost(model: nn.Module) -> float:
    """What the scores over the vocabulary cost, in layers."""
    whole = whole_of(model)
    layer = whole.get_decoder().layers[-1]
    linear = sum(
        module.in_features * module.out_features for module in layer.modules() if hasattr(module, "in_features")
    )
    text = text_of(whole.config)
    return float(text.vocab_size * text.hidden_size / linear)


class PipeSync(Strategy):
    """Each rank has the gradients of its own layers, and zeros elsewhere: the sum over all ranks is the whole one."""

    kind = "pipe"

    def __init__(
        self, stage: Stage | None, module: LossModule, trained: Trained, workers: RowTakers, wire: str
    ) -> None:
        """`stage`: None on a rank that holds the whole model, beside a pipe."""
        super().__init__(trained)
        self.stage, self.module, self.workers, self.wire = stage, module, workers, wire
        cuts = [" + ".join(f"{workers.names[rank]} {self._layers(rank)}" for rank in group) for group in workers.groups]
        self.why = f"layers {', '.join(cuts)}"
        self.under_way = False
        self.rates: list[deque[float]] = [deque(maxlen=MEASURED) for _ in workers.names]
        self.kept: list[float] = []

    def _layers(self, rank: int) -> str:
        layers = self.workers.layers[rank]
        return "all" if layers is None else f"{layers[0] + 1}-{layers[1]}"

    @property
    def interrupted_exchange(self) -> bool:
        return self.under_way

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        self.under_way = True
        start = time.perf_counter()
        total = self.stage.step(batches, weight) if self.stage else self._whole(batches, weight)
        done = time.perf_counter()
        computing_s, work = done - start, 0.0
        if self.stage:
            computing_s, self.stage.computing_s = self.stage.computing_s, 0.0
            work = self.stage.cost * sum(len(batch["input_ids"]) for batch in batches)
        self._all_reduce()
        self.under_way = False
        blocked_s = time.perf_counter() - done
        return StepTiming(total, computing_s, blocked_s, pipe_s=done - start, layer_rows=float(work))

    def _whole(self, batches: list[Batch], weight: float) -> float:
        total = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            with record_function(COMPUTE):
                loss = self.module(batch)
                (loss * weight).backward()
            total += loss.detach().cpu()
        return float(total)

    def _all_reduce(self) -> None:
        fill_in(self.trained.parameters)
        gradients = [p.grad for p in self.trained.parameters]
        sums = [gradient.to("cpu") for gradient in gradients]
        all_reduce(sums, self.wire)
        for gradient, summed in zip(gradients, sums, strict=True):
            gradient.copy_(summed)

    def observe(self, timings: list[StepTiming]) -> list[StepTiming]:
        for seen, timing in zip(self.rates, timings, strict=True):
            if timing.layer_rows:
                seen.append(timing.layer_rows / max(timing.compute_s, 1e-9))
        return timings

    def decide(self) -> Choice | None:
        """The speed of each stage, by which the next generation cuts."""
        stages = [rank for rank, own in enumerate(self.workers.layers) if own is not None]
        if any(len(self.rates[rank]) < MEASURED for rank in stages):
            return None
        now = [statistics.median(self.rates[rank]) for rank in stages]
        if self.kept and all(abs(a / b - 1) < CHANGED for a, b in zip(now, self.kept, strict=True)):
            return None
        self.kept = now
        speeds = [f"{self.workers.names[rank]}={speed:.4g}" for rank, speed in zip(stages, now, strict=True)]
        message = f"stages compute {', '.join(speeds).replace('=', ' ')} layers of a row per second"
        return Choice({"stage_speeds": ",".join(speeds)}, message)
