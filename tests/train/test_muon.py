"""Muon: plain PyTorch's numbers, the same on any cluster, each matrix computed by one owner."""

import math

import pytest
import torch
from torch import nn

from tests.train import cluster, reference, texts
from train.engine.make_optimizer import MuonOnCpu, make_optimizer
from train.models.optimizer_step import optimizer_state, set_optimizer_state
from train.parallel.muon import Muon, orthogonal, owners
from train.plan.settings.read_settings import load_config


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return {**texts.SETTINGS, "optimizer": "muon", "dataset": texts.rows(tmp_path_factory.mktemp("data"))}


def test_all_directions_become_equally_strong():
    torch.manual_seed(1)
    for shape in ((24, 24), (16, 48), (48, 16)):
        strengths = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert strengths.min() > 0.6 and strengths.max() < 1.3
    assert torch.isfinite(orthogonal(torch.zeros(4, 8))).all()


def test_every_matrix_has_one_owner_and_work_is_even():
    shapes = [(64, 64)] * 8 + [(64, 192)] * 12
    found = owners(shapes, 3)
    assert sorted(number for owned in found for number in owned) == list(range(20))
    work = [sum(max(shapes[n]) * min(shapes[n]) ** 2 for n in owned) for owned in found]
    assert max(work) < 1.2 * min(work)
    assert owners(shapes[:1], 3) == [[0], [], []] and owners([], 2) == [[], []]


def written_down_again(matrices, others):
    optimizer = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    momenta = [torch.zeros_like(p) for p in matrices]

    def step_at(rate):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        for p, momentum in zip(matrices, momenta, strict=True):
            momentum.mul_(0.95).add_(p.grad)
            x = p.grad + 0.95 * momentum
            x = x / (x.norm() + 1e-7)
            for _ in range(5):
                square = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
                polynomial = -4.7750 * square + 2.0315 * square @ square
                x = 3.4445 * x + (polynomial @ x if x.shape[0] <= x.shape[1] else x @ polynomial)
            p.data.mul_(1 - 0.1 * rate).sub_(0.2 * rate * math.sqrt(max(p.shape)) * x)

    return step_at


def test_its_losses_are_those_of_plain_pytorch(alone, settings):
    truth = texts.truth_of(settings["dataset"], settings, written_down_again)
    assert reference.largest_error(alone.losses(), truth) < 1e-5
    assert truth[-1] < 0.95 * truth[0], "nothing was learned"


@pytest.mark.parametrize("sync", ["flat", pytest.param("ddp", marks=pytest.mark.long)])
def test_three_unequal_ones_and_after_a_kill_two_have_the_same_curve(alone, settings, tmp_path, sync):
    """The momentum of a matrix is kept by all, whoever owned it."""
    cluster.killed(tmp_path, {**settings, "shares": "5,2,1", "sync": sync, "micro_batch": 2}, 9)
    run = cluster.train(tmp_path, {**settings, "shares": "3,1", "sync": sync}, 2)
    assert run.events(kind="start")[-1]["step"] >= 6
    reference.assert_one_model(run, alone)


def trained(kind, steps=5):
    torch.manual_seed(1)
    weights = {"wide": nn.Parameter(torch.randn(16, 8)), "narrow": nn.Parameter(torch.randn(8))}
    groups = [{"params": [weights["wide"]], "muon": True}, {"params": [weights["narrow"]]}]
    optimizer = kind(groups, lr=1e-2, weight_decay=0.1)
    for number in range(steps):
        for p in weights.values():
            p.grad = torch.randn_like(p)
        if number % 2:  # as in training; else as in a trial
            optimizer.exchange(1.0, torch.float32)
        optimizer.step()
    return weights, optimizer


def test_a_step_in_main_memory_has_the_same_numbers_and_a_checkpoint_brings_it_back():
    (mine, on_cpu), (other, optimizer) = trained(MuonOnCpu), trained(Muon)
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    tensors, numbers = optimizer_state(mine, on_cpu)
    assert {"wide|momentum", "narrow|exp_avg"} <= tensors.keys() and "wide|exp_avg" not in tensors
    set_optimizer_state(other, optimizer, tensors, numbers)
    assert torch.equal(optimizer.state[other["wide"]]["momentum"], on_cpu.state[mine["wide"]]["momentum"])


def test_it_steps_where_the_others_step():
    config = load_config({**texts.SETTINGS, "optimizer": "muon"})
    assert type(make_optimizer(config, [nn.Parameter(torch.zeros(2))])) is Muon
    assert type(make_optimizer(config, [nn.Parameter(torch.zeros(2))], on_cpu=True)) is MuonOnCpu
