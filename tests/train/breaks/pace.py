"""How long something takes, and by whose clock. Nothing else is broken."""

import dataclasses
import os
import signal
import threading
import time

import torch

from tests.train.breaks import own_rank
from train.data.rows import PackedRows
from train.engine import between_steps, build_or_keep_model, loop, shutdown
from train.models import sample_tokens
from train.models.backends import LossModule
from train.parallel import delta_exchange, gradient_exchange
from train.parallel.peers import Peers
from train.parallel.rebalance import Balance
from train.recipes.generate.recipe import Generate
from train.recipes.grpo import hand_out
from train.runlog import trace


def who_prepares() -> None:
    """Nothing broken: it says which thread makes the arrays of each micro-batch."""
    batch = PackedRows.batch

    def watched(self, *words):
        print(f"rows by {threading.current_thread().name}", flush=True)
        return batch(self, *words)

    PackedRows.batch = watched


def other_clocks(seconds: int) -> None:
    """Nothing broken: each process's recorded steps are by a clock that is so many seconds before the last one's."""
    read_events = trace.read_events

    def read(file):
        base_ns, events = read_events(file)
        return base_ns + own_rank() * seconds * 1_000_000_000, events

    trace.read_events = read


def rests(step: int) -> None:
    """Nothing broken: it waits after this step, in the middle of a round, to be stopped there."""
    update = loop.update

    def resting(run, norm):
        update(run, norm)
        if run.step == step:
            time.sleep(600)

    loop.update = resting


def rests_in_evaluation(step: int) -> None:
    """Nothing broken: it is stopped in the midst of the evaluation after this step."""
    look = between_steps.held_out_loss

    def resting(run):
        if run.step == step:
            run.reporter.say("resting")
            time.sleep(600)
        return look(run)

    between_steps.held_out_loss = resting


def lingers(step: int) -> None:
    """Nothing broken: it is stopped in the middle of this step and of a round, and its end takes so long that the step
    could still be reported."""
    observe, leaving = loop.observe, shutdown.leave

    def slow_observe(run, mine):
        if run.step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        return observe(run, mine)

    def slow_leave(run, reason):
        leaving(run, reason)
        time.sleep(2)

    loop.observe, shutdown.leave = slow_observe, slow_leave


def slow_syncs(milliseconds: int) -> None:
    """Nothing broken: steps take 1 ms, an exchange so many, on paper."""
    gradients = gradient_exchange.FlatSync.gradients

    def quick(self, batches, weight):
        return dataclasses.replace(gradients(self, batches, weight), compute_s=0.001)

    delta_exchange.Exchange.took_s, gradient_exchange.FlatSync.gradients = milliseconds / 1000, quick


def slow_rank(milliseconds: int) -> None:
    """Nothing broken: each row, of 30 tokens, takes rank 1 so much longer, on paper, up to step 10."""
    compute = gradient_exchange.FlatSync.gradients, gradient_exchange.DdpSync.gradients

    def slowed(which):
        def gradients(self, batches, weight):
            slowed.steps += 1
            rows = sum(int((batch["input_ids"] != 0).sum()) for batch in batches) / 30
            pause_s = milliseconds / 1000 * rows if own_rank() == 1 and slowed.steps <= 10 else 0.0
            done = compute[which](self, batches, weight)
            return dataclasses.replace(done, compute_s=0.001 + 0.01 * rows + pause_s)

        return gradients

    slowed.steps = 0
    gradient_exchange.FlatSync.gradients, gradient_exchange.DdpSync.gradients = slowed(0), slowed(1)


def slow_to_begin(seconds: int) -> None:
    """Nothing broken: the second node needs so much longer for its first rows."""
    compute = loop.compute

    def slow(run, mine, weight):
        time.sleep(seconds if own_rank() == 1 and run.step == 0 else 0)
        return compute(run, mine, weight)

    loop.compute = slow


def slow_base(seconds: int) -> None:
    """Nothing broken: as long as a card's libraries and a base of gigabytes take."""
    build = build_or_keep_model.build

    def slow(*words):
        time.sleep(seconds)
        return build(*words)

    build_or_keep_model.build = slow


def slow_answers(milliseconds: int) -> None:
    """Nothing broken: each token of the first rank's answers takes so much longer, and it looks after each whether
    somebody waits."""
    choose = sample_tokens.choose

    def slowed(*words):
        time.sleep(milliseconds / 1000 if own_rank() == 0 else 0)
        return choose(*words)

    sample_tokens.choose, hand_out.LOOK_S = slowed, 0.0


def slow_pieces(milliseconds: int) -> None:
    """Nothing broken: each piece takes so much longer, so that something can happen to it."""
    work = Generate.work

    def slowly(self, piece, desk):
        time.sleep(milliseconds / 1000)
        return work(self, piece, desk)

    Generate.work = slowly


def sleeps_over_answers() -> None:
    """The second rank never ends its first one."""

    def sleeping(*_):
        print("sleeping", flush=True)
        time.sleep(600)

    sample_tokens.choose = sleeping if own_rank() == 1 else sample_tokens.choose


def speeds_as_known() -> None:
    """Nothing broken: what a step takes is no news of a machine, so shares follow from the settings' speeds."""
    Balance.learn = lambda *_, **__: None


def pretended_speed(speed: int) -> None:
    """Nothing broken: a machine so many times as fast as one that takes 30 ms for a token, and 80 for a row."""
    choose, forward = sample_tokens.choose, LossModule.forward

    def choosing(scores, *words):
        time.sleep(0.03 / speed * len(scores))
        return choose(scores, *words)

    def trains(self, batch):
        time.sleep(0.08 / speed * len(batch["input_ids"]) if batch is not None and torch.is_grad_enabled() else 0)
        return forward(self, batch)

    sample_tokens.choose, LossModule.forward = choosing, trains


def pretended_reading(speed: int) -> None:
    """Nothing broken: a machine so many times as fast as one that takes 50 ms for a request of a task."""
    from train.recipes.evaluate.model import InBlocks  # noqa: PLC0415  lm-eval is not everywhere

    asks = InBlocks.fewer_where_memory_ends

    def asking(self, answer, some):
        time.sleep(0.05 / speed * len(some))
        return asks(self, answer, some)

    InBlocks.fewer_where_memory_ends = asking


def pretended_trials(speed: int) -> None:
    """Nothing broken: a machine so many times as fast as one that takes 8 s for a trial."""
    from train.recipes.sweep import recipe  # noqa: PLC0415  Optuna is not everywhere

    class Pretended:
        total, is_heard, was_told_to_leave = 8, True, False

        def __init__(self, home, config, file, device):
            self.began, self.losses = time.monotonic(), []

        @property
        def done(self):
            return min(self.total, int((time.monotonic() - self.began) * speed))

        def poll(self):
            return 0 if self.done == self.total else None

        def news(self):
            found = [(step, 3 - step / 10) for step in range(len(self.losses) + 1, self.done + 1)]
            self.losses += found
            return found

        def end(self, *, saves):
            pass

    recipe.Process, recipe.WATCH_S = Pretended, 0.05


def stays_after_its_last_word() -> None:
    """The second rank hears of nobody's end, and does not end itself once it has said its last word."""
    say_last_word = Peers.say_last_word

    def stays(peers):
        say_last_word(peers)
        print("staying", flush=True)
        time.sleep(600)

    if own_rank() == 1:
        Peers.say_last_word, Peers.hear = stays, lambda *_: None
