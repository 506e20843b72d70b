"""A process that stays while its group changes: what the old group leaves behind must do nothing to it, and what broke
half-way must not be taken for whole."""

import gc
import os
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import ROOT, pace
from tests.train.cluster import environment
from train.engine import between_steps, bring_up_to_date, early_stop, loop
from train.engine import run as engine_run
from train.engine.between_steps import Milestones
from train.engine.build_or_keep_model import NotKeptError
from train.engine.consistency import Disagreement
from train.engine.early_stop import Gains
from train.engine.run import stays
from train.models.backends import LossModule
from train.models.optimizer_step import Trained
from train.parallel import gradient_exchange
from train.parallel.process_group import World
from train.parallel.strategy import Strategy
from train.parallel.worker_orders import TOLD, LeftGroupError, Orders

PEER = RuntimeError("Connection closed by peer [127.0.0.1]:1")


@pytest.fixture
def orders(tmp_path):
    for name in ("word", "answer"):
        (tmp_path / name).write_text("")
    found = Orders(tmp_path / "word", tmp_path / "answer")
    found.tell_agent(stays=True)
    return found


def trained() -> Trained:
    named = {name: nn.Parameter(torch.ones(4)) for name in ("a", "b")}
    return Trained(named, torch.optim.AdamW(named.values(), lr=0.1))


class Left(World):
    """It is told to leave in its broadcast number `at`."""

    def __init__(self, at: int):
        super().__init__(rank=1, size=2, node="b")
        self.at, self.posted = at, []

    def finish(self, work):
        self.posted.append(work)
        if len(self.posted) == self.at:
            raise LeftGroupError(TOLD)

    def numbers(self, mine):
        return [mine, mine]

    def gather(self, value):
        return [value, value]


@pytest.fixture
def sent(monkeypatch):
    """What is handed to gloo, tensor by tensor, which fills it at once with what another has."""
    monkeypatch.setattr("train.parallel.process_group.PART_BYTES", 16)

    def broadcast(tensor, source, async_op):
        tensor.fill_(7.0)
        return tensor

    monkeypatch.setattr(dist, "broadcast", broadcast)


def test_what_arrives_after_it_left_is_no_weight_of_its_own(sent):
    world, weights = Left(at=2), [torch.ones(4), torch.ones(4)]
    with pytest.raises(LeftGroupError):
        world.broadcast(weights, 0)
    world.posted[0].fill_(9.0)
    world.posted[1].fill_(9.0)
    assert (weights[0] == 7).all() and (weights[1] == 1).all()


@pytest.mark.parametrize("at", [1, 2])
def test_it_keeps_its_own_until_all_of_another_is_there(sent, at):
    kept, run = run_at(5), run_at(6, Left(at))
    with pytest.raises(LeftGroupError):
        bring_up_to_date.send_state(run, 0, kept)
    assert all((p == 1).all() for p in run.trained.parameters)
    assert kept.step == 5 and not run.trained.half_changed
    run.world.at = 0
    bring_up_to_date.send_state(run, 0, kept)
    assert all((p == 7).all() for p in run.trained.parameters) and kept.step == 6


def run_at(step: int, world: World | None = None) -> SimpleNamespace:
    weights, milestones = trained(), Milestones(settled=step, best={"step": step, "loss": 1.0, "metrics": {}})
    strategy = Strategy(weights)
    strategy.shared_step = step
    made = {"trained": weights, "strategy": strategy, "milestones": milestones, "step_rows": f"answers of {step}"}
    return SimpleNamespace(step=step, world=world, device="cpu", warm_up=step, **made)


def test_what_is_saved_of_it_or_sent_on_before_it_trains_again_is_the_step_that_came(sent):
    """Its own step is 5. It gets step 40, and before it is in that group's loop it is told to leave, or to save."""
    kept, run = run_at(5), run_at(40, Left(at=0))
    bring_up_to_date.send_state(run, 0, kept)
    assert kept.strategy.rollback() == kept.step == 40, "the weights of step 40 would be saved as step 5"
    assert kept.milestones.best["step"] == 40 and (kept.step_rows, kept.warm_up) == ("answers of 40", 40)


def test_who_has_only_loaded_and_is_left_alone_begins_with_first_weights(sent, monkeypatch):
    """The one that trained is lost while it sends what it has, and neither has a checkpoint."""
    kept, run = run_at(0), run_at(0, Left(at=2))
    theirs = {"step": 6, "best": None, "scaler": None}
    monkeypatch.setattr(bring_up_to_date, "find_own", lambda _: None)
    monkeypatch.setattr(bring_up_to_date, "require_same_math", lambda *_: None)
    monkeypatch.setattr(run.world, "gather", lambda own: [own or theirs] * 2)
    run.balance, run.recipe = SimpleNamespace(knowing=lambda _: None), None
    run.config = SimpleNamespace(resume="auto", warmup_steps=0)
    with pytest.raises(LeftGroupError):
        bring_up_to_date.bring_up_to_date(run, kept)
    assert all((p == 1).all() for p in run.trained.parameters) and kept.step == 0


@pytest.mark.usefixtures("group_of_one")
def test_ddp_and_its_buckets_go_with_their_last_holder():
    model = nn.Linear(4, 4)
    module = LossModule(model, lambda model, batch: model(batch).sum())
    made = gradient_exchange.DdpSync(module, list(model.parameters()), "fp32", "cpu", World(rank=0, size=1))
    made.gradients([torch.ones(1, 4)], 1.0)
    ddp = weakref.ref(made.ddp)
    del made
    gc.collect()
    assert ddp() is None
    assert model.weight.grad is not None


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("connected", [True, False])
def test_the_next_group_has_the_name_that_a_fresh_process_gives_it(connected):
    """A group that did not come about has counted."""
    if not connected:
        dist.destroy_process_group()
    dist.distributed_c10d._world.group_count = 1
    World(rank=0, size=2).abandon()
    assert not dist.is_initialized() and dist.distributed_c10d._world.group_count == 0


@pytest.mark.parametrize(
    ("error", "told", "wanted"),
    [
        (LeftGroupError(TOLD), True, True),
        (RuntimeError(f"Unable to cast LeftGroupError: {TOLD} to Tensor"), True, True),
        (PEER, False, True),
        (PEER, True, True),
        (torch.OutOfMemoryError("CUDA out of memory"), True, False),
        (Disagreement("adapter differs"), True, False),
        (NotKeptError("device: another one in this group, and the process begins anew"), True, False),
        (RuntimeError("boom"), True, False),
    ],
)
def test_it_stays_for_its_agent_and_for_a_lost_peer_and_for_nothing_else(orders, error, told, wanted):
    if told:
        orders.arrived.set()
    assert stays(SimpleNamespace(trained=trained()), orders, error) == wanted == orders.may_stay


def test_whose_group_breaks_twice_before_it_began_starts_again(orders):
    run = SimpleNamespace(trained=trained())
    assert stays(run, orders, PEER, begun=False)
    assert stays(run, orders, PEER, begun=True)
    assert stays(run, orders, PEER, begun=False)
    assert not stays(run, orders, PEER, begun=False)


def test_who_may_hold_the_best_weights_in_place_of_the_last_does_not_stay(orders, monkeypatch):
    """Its last step is on the disk. The next group would take the best weights for that step, and save them as it."""
    broken = LeftGroupError(TOLD)
    world = SimpleNamespace(watch_peers=lambda: None)
    ended = SimpleNamespace(world=world, trained=trained(), recipe=None, strategy=SimpleNamespace(outlives_its_group=1))
    monkeypatch.setattr(engine_run, "enter_group", lambda *_, **__: ended)
    monkeypatch.setattr(engine_run, "fail", lambda _, error: error)
    monkeypatch.setattr(loop, "train", lambda _: None)
    monkeypatch.setattr(early_stop, "conclude", lambda _: (_ for _ in ()).throw(broken))
    with pytest.raises(LeftGroupError):
        engine_run.in_a_group(SimpleNamespace(profile=""), None, orders, None, as_json=False, recipe=None)


@pytest.mark.parametrize(("best", "saves"), [({"step": 8}, 1), ({"step": 4}, 0), (None, 0)])
def test_the_best_that_a_break_kept_from_the_disk_is_saved_where_the_run_resumes(monkeypatch, best, saves):
    made, done = Milestones(settled=8, best=best, evaluated=8, gains=Gains()), []
    monkeypatch.setattr(between_steps, "save", done.append)
    config = SimpleNamespace(patience=0)
    between_steps.make_up(SimpleNamespace(step=8, total_steps=20, milestones=made, config=config))
    assert len(done) == saves


WAITS_AT_ITS_END = """
import runpy, sys, time
from train.parallel import process_group
class Group:
    def __del__(self):
        time.sleep(600)
process_group.ABANDONED.append(Group())
sys.argv = ["train", "versions", "--json"]
runpy.run_module("train", run_name="__main__")
"""


def test_what_a_silent_machine_holds_up_for_ever_is_not_waited_for_at_the_end():
    """Its process is the last of its run, alone, and not a fork."""
    done = pace.run(
        sys.executable,
        "-c",
        WAITS_AT_ITS_END,
        cwd=ROOT,
        env=environment() | {"MOTLEY_AGENT": str(os.getpid())},
        limit_s=60,
    )
    assert done.returncode == 0 and done.stdout.startswith("{")
