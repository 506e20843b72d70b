"""A device, and how cards exchange."""

import dataclasses
import os

import torch
from torch._C import _distributed_c10d as dist

from tests.train.breaks import own_rank
from train.engine import after_loading, build_or_keep_model, checkpoint, loop, setup
from train.models.backends import LossModule
from train.models.stream import stream_of
from train.parallel import gradient_exchange, process_group


class Nccl:
    """In its place: an exchange waits where nobody can call it back, and nothing raises."""

    error = dist.ErrorType.SUCCESS

    def get_error(self):
        return self.error


def nccl() -> None:
    start = process_group.World.start_group

    def starting(self, *, nccl):
        start(self, nccl=nccl)
        self.nccl = Nccl()

    torch.cuda.synchronize = lambda: None
    process_group.World.start_group = starting


def half_an_exchange(step: int) -> None:
    """As NCCL where nobody is gone: an exchange on one rank ends early, its group knows, and nothing raises."""
    nccl()
    exchange = gradient_exchange.FlatSync._all_reduce

    def ending(self):
        exchange(self)
        ending.calls += 1
        if own_rank() == 1 and ending.calls == step:
            Nccl.error = dist.ErrorType.COMM_ERROR
        if ending.calls == step:
            self.parameters[0].grad.add_(1.0)

    ending.calls = 0
    gradient_exchange.FlatSync._all_reduce = ending


def out_of_memory(above: int) -> None:
    """A device that holds only so many rows at a time."""
    loss_sum = LossModule.forward

    def small(self, batch):
        if batch is not None and len(batch["input_ids"]) > above:
            raise torch.OutOfMemoryError("simulated")
        return loss_sum(self, batch)

    LossModule.forward = small


def room_for_layers(layers: int) -> None:
    """A small card, on paper: it streams, has room for so many layers beside its rows, and in step 3 it has not."""
    settle, compute, forward = setup.settle, loop.compute, LossModule.forward
    now = {"step": 0}

    def settling(*words):
        return dataclasses.replace(settle(*words), may_hold=True)

    def trial(config, recipe, module, *_):
        room = layers * max(layer.bytes for layer in stream_of(module.model).layers)
        return lambda micro_batch: 1000 * micro_batch, room + 1000 * config.micro_batch

    def watched(run, mine, weight):
        now["step"] = run.step + 1
        return compute(run, mine, weight)

    def small(self, batch):
        if now["step"] == 3 and stream_of(self.model).held:
            raise torch.OutOfMemoryError("simulated")
        return forward(self, batch)

    setup.settle, after_loading.trial_of, loop.compute, LossModule.forward = settling, trial, watched, small


def sick_card() -> None:
    """Its kernel is ended by the driver, and after that the card gives nothing back."""

    def ended(*_, **__):
        raise torch.AcceleratorError("CUDA error: the launch timed out and was terminated")

    def gives_nothing(*_, **__):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    loop.compute, checkpoint.write = ended, gives_nothing


def aborts() -> None:
    """A card's error in a thread of torch's, which ends the process before Python can say why."""
    loop.compute = lambda *_, **__: os.abort()


def no_base() -> None:
    def build(*_):
        raise RuntimeError("CUDA error: out of memory, a game has it")

    build_or_keep_model.build = build
