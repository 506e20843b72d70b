"""One exchange of many tensors: in pieces, some of them under way, each sum in its place. And what ddp exchanges while
the backward pass still runs."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from train.models.backends import LossModule
from train.parallel import gradient_exchange
from train.parallel.process_group import World


class Played:
    """Two ranks with the same numbers: an exchange doubles, when it is waited for."""

    def __init__(self):
        self.sizes, self.under_way, self.most = [], 0, 0

    def all_reduce(self, flat, *, async_op):
        assert async_op
        self.sizes.append(len(flat))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return Work(self, flat)


class Work:
    def __init__(self, played, flat):
        self.played, self.flat = played, flat

    def wait(self):
        self.played.under_way -= 1
        self.flat.mul_(2)


@pytest.fixture
def played(monkeypatch):
    found = Played()
    monkeypatch.setattr(gradient_exchange.dist, "all_reduce", found.all_reduce)
    monkeypatch.setattr(gradient_exchange, "PIECE", 10)
    return found


def tensors():
    """Small and large ones, one number, none, one that is laid out in columns, and one of another type."""
    numbers = torch.arange(64.0)
    return [numbers[:3].clone(), numbers.clone(), torch.tensor(5.0), torch.empty(0),
            numbers[:12].view(3, 4).clone().t(), numbers[:4].bfloat16()]  # fmt: skip


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_each_sum_is_in_its_place(played, wire):
    mine = tensors()
    gradient_exchange.all_reduce(mine, wire)
    for tensor, before in zip(mine, tensors(), strict=True):
        assert torch.equal(tensor, before * 2)
        assert tensor.dtype == before.dtype


def test_it_travels_in_pieces_of_one_size_of_which_few_are_under_way(played):
    """Cut where a piece is full, wherever a tensor ends: where it is cut decides the order of its sums."""
    gradient_exchange.all_reduce(tensors(), "fp32")
    assert played.sizes == [10] * 8 + [4]
    assert played.most == gradient_exchange.AHEAD
    assert played.under_way == 0


def test_what_is_on_its_way_when_the_group_is_left_is_a_copy(played):
    """Gloo's threads may still write to it."""
    waited = []

    def left(work):
        waited.append(work.flat.fill_(-1))
        raise RuntimeError("left")

    mine = tensors()
    with pytest.raises(RuntimeError, match="left"):
        gradient_exchange.all_reduce(mine, "fp32", left)
    assert len(waited) == 1
    assert all(map(torch.equal, mine, tensors()))


# -- ddp ---------------------------------------------------------------------------------------------------------------

LAYERS = 8


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_small_adapter_travels_while_the_backward_pass_still_runs(alone, monkeypatch):
    """In one bucket it would begin when all is computed."""
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(LAYERS)))
    computed, sent = [], []
    for layer in model:
        layer.weight.register_post_accumulate_grad_hook(computed.append)
    begin = dist.all_reduce

    def seen(part, **how):
        sent.append((len(part), len(computed)))
        return begin(part, **how)

    monkeypatch.setattr(dist, "all_reduce", seen)
    module = LossModule(model, lambda model, batch: model(batch).sum())
    made = gradient_exchange.DdpSync(module, list(model.parameters()), "fp32", "cpu", World(rank=0, size=1))
    for _ in range(3):  # ddp asks in the first how the gradients come, and cuts by it from the second on
        computed.clear()
        sent.clear()
        made.gradients([torch.ones(1, 16)], 1.0)
    assert sum(size for size, _ in sent) == LAYERS * 16 * 16
    assert len(sent) == gradient_exchange.BUCKETS and sent[0][1] <= LAYERS / 2, sent


def test_a_large_one_travels_in_buckets_of_a_few_megabytes():
    weight = nn.Parameter(torch.empty(1 << 20, device="meta"))
    assert gradient_exchange.bucket_mb([weight] * 64) == gradient_exchange.BUCKET_MB
    assert gradient_exchange.bucket_mb([weight]) == 4 / gradient_exchange.BUCKETS
