"""The training program with one thing changed from outside, most often broken on purpose: broken.py WHAT run …, or
WHAT=NUMBER, or several with a plus between them."""

import dataclasses
import errno
import os
import pickle
import signal
import sys
import threading
import time

import torch
from torch._C import _distributed_c10d as dist
from torch.distributed import distributed_c10d

from train import __main__
from train.cluster import agent, notifier
from train.data.rows import PackedRows
from train.engine import checkpoint, dealt, loop, milestones, profiler, setup, shutdown, staging
from train.errors import BadInput
from train.models import drawing
from train.models.backends import LossModule
from train.models.stream import stream_of
from train.parallel import diloco, process_group, sync
from train.parallel.shares import Balance
from train.recipes import model_card
from train.recipes.grpo import hand_out
from train.runlog import events, trace

RANK = int(os.environ.get("RANK", "0"))


def mean_of_means() -> None:
    """Every rank divides by its own number of tokens and the ranks are averaged."""
    compute = loop.compute

    def naive(run, mine, weight):
        own = int(run.rows.targets[mine].sum())
        return compute(run, mine, 1 / own / run.world.size)

    loop.compute = naive


def other_clocks(seconds: int) -> None:
    """Nothing broken: each process's recorded steps are by a clock that is so many seconds before the last one's."""
    read_events = trace.read_events

    def read(file):
        base_ns, events = read_events(file)
        return base_ns + RANK * seconds * 1_000_000_000, events

    trace.read_events = read


def no_room_for_a_trace() -> None:
    def write_trace(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "trace")

    profiler.write_trace = write_trace


def full_at_the_end() -> None:
    """The adapter does not fit on the disk any more."""

    def write_result(run):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.config.result_folder))

    milestones.write_result = write_result


def no_card() -> None:
    """Nothing can be said of the result."""

    def card(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/home/anna/notes.jsonl")

    model_card.card = card


def no_pickle() -> None:
    """Nothing broken: what is sent is no program."""

    def refuse(*_, **__):
        raise SystemExit("something was unpickled")

    pickle.loads = pickle.load = pickle.Unpickler = distributed_c10d._unpickler = refuse


def moving_shares() -> None:
    """Nothing broken: other shares at every step, as balancing will have them."""
    update = loop.update

    def moving(run, norm):
        update(run, norm)
        run.balance.shares = [float((run.step * (rank + 2)) % 5) for rank in range(run.world.size - 1)] + [1.0]

    loop.update = moving


def who_prepares() -> None:
    """Nothing broken: it says which thread makes the arrays of each micro-batch."""
    batch = PackedRows.batch

    def watched(self, *words):
        print(f"rows by {threading.current_thread().name}", flush=True)
        return batch(self, *words)

    PackedRows.batch = watched


def idle_rounds(steps: int) -> None:
    """Nothing broken: the last rank has no rows in every second round, the others' change."""
    update = loop.update

    def share(run):
        idle = run.step // steps % 2 == 0
        run.balance.shares = [3.0 + run.step % 2, 2.0, 0.0] if idle else [2.0, 1.0, 1.0]

    def idling(run, norm):
        update(run, norm)
        share(run)

    loop.update = idling
    train = loop.train

    def from_the_start(run):
        share(run)
        train(run)

    loop.train = from_the_start


def rests(step: int) -> None:
    """Nothing broken: it waits after this step, in the middle of a round, to be stopped there."""
    update = loop.update

    def resting(run, norm):
        update(run, norm)
        if run.step == step:
            time.sleep(600)

    loop.update = resting


def last_node_rests(step: int) -> None:
    """Nothing broken: the third machine waits after this step, to be lost there."""
    if os.environ["MOTLEY_NODE"] == "node-2":
        rests(step)


def rests_in_evaluation(step: int) -> None:
    """Nothing broken: it is stopped in the midst of the evaluation after this step."""
    look = milestones.held_out_loss

    def resting(run):
        if run.step == step:
            run.reporter.say("resting")
            time.sleep(600)
        return look(run)

    milestones.held_out_loss = resting


def forgets_checkpoint(step: int) -> None:
    """The second node was away when this one was written."""
    write = checkpoint.write

    def writing(root, at, *words, **named):
        return root / f"step-{at}" if RANK == 1 and at == step else write(root, at, *words, **named)

    checkpoint.write = writing


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
    whole, gradients = diloco.DiLoCo.sync, sync.FlatSync.gradients

    def slow(self, *, moments):
        whole(self, moments=moments)
        return milliseconds / 1000

    def quick(self, batches, weight):
        return dataclasses.replace(gradients(self, batches, weight), compute_s=0.001)

    diloco.DiLoCo.sync, sync.FlatSync.gradients = slow, quick


def slow_rank(milliseconds: int) -> None:
    """Nothing broken: each row, of 30 tokens, takes rank 1 so much longer, on paper, up to step 10."""
    compute = sync.FlatSync.gradients, sync.DdpSync.gradients

    def slowed(which):
        def gradients(self, batches, weight):
            slowed.steps += 1
            rows = sum(int((batch["input_ids"] != 0).sum()) for batch in batches) / 30
            pause_s = milliseconds / 1000 * rows if RANK == 1 and slowed.steps <= 10 else 0.0
            done = compute[which](self, batches, weight)
            return dataclasses.replace(done, compute_s=0.001 + 0.01 * rows + pause_s)

        return gradients

    slowed.steps = 0
    sync.FlatSync.gradients, sync.DdpSync.gradients = slowed(0), slowed(1)


def speeds_as_known() -> None:
    """Nothing broken: what a step takes is no news of a machine, so shares follow from the settings' speeds."""
    Balance.learn = lambda *_, **__: None


def drops_a_sample() -> None:
    """The second rank forgets one of those that it is dealt."""
    deal = dealt.deal

    def careless(*words):
        found = deal(*words)
        return [own[1:] if RANK == 1 and rank == 1 else own for rank, own in enumerate(found)]

    dealt.deal = careless


def slow_answers(milliseconds: int) -> None:
    """Nothing broken: each token of the first rank's answers takes so much longer, and it looks after each whether
    somebody waits."""
    choose = drawing.choose

    def slowed(*words):
        time.sleep(milliseconds / 1000 if RANK == 0 else 0)
        return choose(*words)

    drawing.choose, hand_out.LOOK_S = slowed, 0.0


def sleeps_over_answers() -> None:
    """The second rank never ends its first one."""

    def sleeping(*_):
        print("sleeping", flush=True)
        time.sleep(600)

    drawing.choose = sleeping if RANK == 1 else drawing.choose


def nobody_takes_over() -> None:
    """What a slow machine has begun it ends itself."""
    hand_out.LOOK_S = float("inf")


def pretended_speed(speed: int) -> None:
    """Nothing broken: a machine so many times as fast as one that takes 30 ms for a token, and 80 for a row."""
    choose, forward = drawing.choose, LossModule.forward

    def choosing(scores, *words):
        time.sleep(0.03 / speed * len(scores))
        return choose(scores, *words)

    def trains(self, batch):
        time.sleep(0.08 / speed * len(batch["input_ids"]) if batch is not None and torch.is_grad_enabled() else 0)
        return forward(self, batch)

    drawing.choose, LossModule.forward = choosing, trains


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


def own_shares(step: int) -> None:
    """One rank has other shares than the rest from this step on."""
    update = loop.update

    def updating(run, norm):
        update(run, norm)
        if RANK == 1 and run.step == step - 1:
            run.balance.shares = [2.0, 1.0, 1.0]

    loop.update = updating


def own_gradient(first_step: int) -> None:
    """One rank takes part in the exchange and then ignores what came of it."""
    exchange = sync.FlatSync._all_reduce

    def ignoring(self):
        own = [p.grad.clone() for p in self.parameters]
        exchange(self)
        ignoring.calls += 1
        if RANK == 1 and ignoring.calls >= first_step:
            for parameter, gradient in zip(self.parameters, own, strict=True):
                parameter.grad = gradient

    ignoring.calls = 0
    sync.FlatSync._all_reduce = ignoring


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
    exchange = sync.FlatSync._all_reduce

    def ending(self):
        exchange(self)
        ending.calls += 1
        if RANK == 1 and ending.calls == step:
            Nccl.error = dist.ErrorType.COMM_ERROR
        if ending.calls == step:
            self.parameters[0].grad.add_(1.0)

    ending.calls = 0
    sync.FlatSync._all_reduce = ending


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

    setup.settle, setup.trial_of, loop.compute, LossModule.forward = settling, trial, watched, small


def nan_loss(at_call: int) -> None:
    forward = LossModule.forward

    def poisoned(self, batch):
        poisoned.calls += 1
        return forward(self, batch) * (float("nan") if RANK == 1 and poisoned.calls == at_call else 1.0)

    poisoned.calls = 0
    LossModule.forward = poisoned


def fails(at_step: int) -> None:
    """An ordinary bug on one rank."""
    feed = loop.to_tensors

    def failing(batch, device):
        failing.calls += 1
        if RANK == 1 and failing.calls == at_step:
            raise RuntimeError("the cat pulled the plug")
        return feed(batch, device)

    failing.calls = 0
    loop.to_tensors = failing


def fails_in_update(at_step: int) -> None:
    """Some weights are new already, others are not."""
    step = torch.optim.AdamW.step

    def failing(self, closure=None):
        failing.calls += 1
        if RANK == 1 and failing.calls == at_step:
            self.param_groups[0]["params"][0].data += 1
            raise RuntimeError("half an update")
        return step(self, closure)

    failing.calls = 0
    torch.optim.AdamW.step = failing


def own_norm() -> None:
    """Nothing broken: the second rank's sum differs in its last bits."""
    total = torch.nn.utils.get_total_norm

    def theirs(*words, **named):
        return total(*words, **named) * (1 + 1e-6 * RANK)

    torch.nn.utils.get_total_norm = theirs


def endless_gradient(at_step: int) -> None:
    compute = loop.compute

    def overflows(run, mine, weight):
        done = compute(run, mine, weight)
        if run.step + 1 == at_step:
            run.trained.parameters[0].grad.fill_(torch.inf)
        return done

    loop.compute = overflows


def full_disk() -> None:
    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    checkpoint.write = no_room


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


def slow_to_begin(seconds: int) -> None:
    """Nothing broken: the second node needs so much longer for its first rows."""
    compute = loop.compute

    def slow(run, mine, weight):
        time.sleep(seconds if RANK == 1 and run.step == 0 else 0)
        return compute(run, mine, weight)

    loop.compute = slow


def slow_base(seconds: int) -> None:
    """Nothing broken: as long as a card's libraries and a base of gigabytes take."""
    build = setup.build

    def slow(*words):
        time.sleep(seconds)
        return build(*words)

    setup.build = slow


def no_base() -> None:
    def build(*_):
        raise RuntimeError("CUDA error: out of memory, a game has it")

    setup.build = build


def slow_disk(seconds: int) -> None:
    """The agent's: what it brings to the disk takes long."""
    copy = staging.shutil.copytree

    def slow(*paths, **how):
        time.sleep(seconds)
        return copy(*paths, **how)

    staging.shutil.copytree = slow


def held_disk() -> None:
    """The agent's: what it brings to the disk waits until somebody lays a file "go" beside it."""
    copy = staging.shutil.copytree

    def held(source, target, **how):
        while not target.with_name("go").exists():
            time.sleep(0.02)
        return copy(source, target, **how)

    staging.shutil.copytree = held


def slow_save(seconds: int) -> None:
    """The worker's: as of many weights, of which its start tells."""
    write, told = checkpoint.write, events.EventLog.write

    def slow(*what, **how):
        time.sleep(seconds)
        return write(*what, **how)

    def tell(log, kind, **facts):
        told(log, kind, **facts | ({"weights": 168_000_000} if kind == "start" else {}))

    checkpoint.write, events.EventLog.write = slow, tell


def failing_agent(step: int) -> None:
    """The agent's: something that nobody has thought of, once this step is trained."""
    look = agent.LocalWorkers.look

    def fails(workers, generation):
        if workers.progress.step >= step and agent.LocalWorkers.look is fails:
            agent.LocalWorkers.look = look  # what it does to end well is not broken
            raise BadInput("no port is free")
        return look(workers, generation)

    agent.LocalWorkers.look = fails


def told_soon(seconds: int) -> None:
    """Nothing broken, the agent's: a machine is lost and a majority missing after these seconds."""
    notifier.LOST_S = notifier.MAJORITY_S = seconds


if __name__ == "__main__":
    for change in sys.argv[1].split("+"):
        what, *numbers = change.split("=")
        globals()[what](*[int(number) for number in numbers])
    status = __main__.main(sys.argv[2:])
    sys.stdout.flush()
    os._exit(status)
