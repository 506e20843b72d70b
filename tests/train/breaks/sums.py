"""What ranks compute and exchange: rows, shares, gradients, losses."""

import pickle

import torch
from torch.distributed import distributed_c10d

from tests.train.breaks import own_rank
from train.engine import loop, split_last_rows
from train.models.backends import LossModule
from train.parallel import gradient_exchange


def mean_of_means() -> None:
    """Every rank divides by its own number of tokens and the ranks are averaged."""
    compute = loop.compute

    def naive(run, mine, weight):
        own = int(run.rows.targets[mine].sum())
        return compute(run, mine, 1 / own / run.world.size)

    loop.compute = naive


def drops_a_sample() -> None:
    """The second rank forgets one of those that it is dealt."""
    deal = split_last_rows.deal

    def careless(*words):
        found = deal(*words)
        return [own[1:] if own_rank() == 1 and rank == 1 else own for rank, own in enumerate(found)]

    split_last_rows.deal = careless


def moving_shares() -> None:
    """Nothing broken: other shares at every step, as balancing will have them."""
    update = loop.update

    def moving(run, norm):
        update(run, norm)
        run.balance.shares = [float((run.step * (rank + 2)) % 5) for rank in range(run.world.size - 1)] + [1.0]

    loop.update = moving


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


def own_shares(step: int) -> None:
    """One rank has other shares than the rest from this step on."""
    update = loop.update

    def updating(run, norm):
        update(run, norm)
        if own_rank() == 1 and run.step == step - 1:
            run.balance.shares = [2.0, 1.0, 1.0]

    loop.update = updating


def own_gradient(first_step: int) -> None:
    """One rank takes part in the exchange and then ignores what came of it."""
    exchange = gradient_exchange.FlatSync._all_reduce

    def ignoring(self):
        own = [p.grad.clone() for p in self.parameters]
        exchange(self)
        ignoring.calls += 1
        if own_rank() == 1 and ignoring.calls >= first_step:
            for parameter, gradient in zip(self.parameters, own, strict=True):
                parameter.grad = gradient

    ignoring.calls = 0
    gradient_exchange.FlatSync._all_reduce = ignoring


def own_norm() -> None:
    """Nothing broken: the second rank's sum differs in its last bits."""
    total = torch.nn.utils.get_total_norm

    def theirs(*words, **named):
        return total(*words, **named) * (1 + 1e-6 * own_rank())

    torch.nn.utils.get_total_norm = theirs


def endless_gradient(at_step: int) -> None:
    compute = loop.compute

    def overflows(run, mine, weight):
        done = compute(run, mine, weight)
        if run.step + 1 == at_step:
            run.trained.parameters[0].grad.fill_(torch.inf)
        return done

    loop.compute = overflows


def nan_loss(at_call: int) -> None:
    forward = LossModule.forward

    def poisoned(self, batch):
        poisoned.calls += 1
        return forward(self, batch) * (float("nan") if own_rank() == 1 and poisoned.calls == at_call else 1.0)

    poisoned.calls = 0
    LossModule.forward = poisoned


def fails(at_step: int) -> None:
    """An ordinary bug on one rank."""
    feed = loop.to_tensors

    def failing(batch, device):
        failing.calls += 1
        if own_rank() == 1 and failing.calls == at_step:
            raise RuntimeError("the cat pulled the plug")
        return feed(batch, device)

    failing.calls = 0
    loop.to_tensors = failing


def fails_in_update(at_step: int) -> None:
    """Some weights are new already, others are not."""
    step = torch.optim.AdamW.step

    def failing(self, closure=None):
        failing.calls += 1
        if own_rank() == 1 and failing.calls == at_step:
            self.param_groups[0]["params"][0].data += 1
            raise RuntimeError("half an update")
        return step(self, closure)

    failing.calls = 0
    torch.optim.AdamW.step = failing


def no_pickle() -> None:
    """Nothing broken: what is sent is no program."""

    def refuse(*_, **__):
        raise SystemExit("something was unpickled")

    pickle.loads = pickle.load = pickle.Unpickler = distributed_c10d._unpickler = refuse
