"""What ddp exchanges while the backward pass still runs."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from train.models.backends import LossModule
from train.parallel import gradient_exchange
from train.parallel.process_group import World

LAYERS = 8


@pytest.mark.usefixtures("group_of_one")
def test_a_small_adapter_travels_while_the_backward_pass_still_runs(monkeypatch):
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
    assert (
        gradient_exchange.bucket_mb([nn.Parameter(torch.empty(1 << 20, device="meta"))] * 64)
        == gradient_exchange.BUCKET_MB
    )
    assert (
        gradient_exchange.bucket_mb([nn.Parameter(torch.empty(1 << 20, device="meta"))])
        == 4 / gradient_exchange.BUCKETS
    )
