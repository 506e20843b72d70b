"""The benchmarks' machines of pretended speeds (tests/bench/pretended.py)."""

import time

import pytest
import torch
from torch import nn

from tests.bench.pretended import played, rows_in
from train.models.backends import LossModule


def test_gradients_come_in_the_time_and_the_order_of_a_card():
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(4)))
    came = []
    for layer in model:
        layer.weight.register_post_accumulate_grad_hook(lambda p: came.append((time.monotonic(), id(p))))
    began = time.monotonic()
    loss = played(LossModule(model, lambda *_: None), 0.6)
    assert time.monotonic() - began >= 0.2
    loss.backward()
    assert [weight for _, weight in came] == [id(layer.weight) for layer in reversed(model)]
    assert [at - began >= wanted for (at, _), wanted in zip(came, (0.3, 0.4, 0.5, 0.6), strict=True)] == [True] * 4
    assert came[0][0] < came[-1][0] - 0.2, "they come one after another"


def test_padding_takes_as_long_as_tokens():
    assert rows_in({"input_ids": torch.zeros(3, 128)}, 256) == pytest.approx(1.5)
    assert rows_in({"pictures": torch.zeros(5, 3, 8, 8)}, 256) == 5
