"""What a card computes in where it works alone: a question, an evaluation, a measurement."""

import pytest
import torch

from train.models.device import precision_of


@pytest.mark.parametrize(("capability", "wanted"), [((7, 5), "fp16"), ((8, 0), "bf16"), ((12, 0), "bf16")])
def test_a_card_without_bf16_answers_in_fp16(monkeypatch, capability, wanted):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda card: capability if card == 1 else None)
    assert precision_of("cuda:1") == wanted
    assert precision_of("cpu") == "fp32"
