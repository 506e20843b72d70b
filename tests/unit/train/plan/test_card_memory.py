"""What a training takes of a card, as planned and as an H100 was seen to give it (tests/gpu/memory.py)."""

import json

import pytest

from tests.gpu.memory import LENGTH, OFF
from tests.gpu.results import RECORDED
from tests.gpu.weights import facts_of
from train.plan.model.memory import Setup, memory

MODELS = {"7b": "llama2-7b", "8b": "llama3.1-8b"}


@pytest.mark.parametrize("short, kind", [
    ("7b", "hf"), ("7b", "unsloth"), ("7b", "streamed"), ("8b", "hf"), ("8b", "unsloth"),
])  # fmt: skip
def test_the_plan_is_what_a_card_took(short, kind):
    for seen in json.loads((RECORDED / f"memory-{short}-{kind}.json").read_text())["cards"]:
        setup = Setup(
            row_length=LENGTH,
            micro_batch=max(1, seen["rows"]),
            offloads=kind == "unsloth",
            weights="stream" if kind == "streamed" else "gpu",
        )
        planned = memory(facts_of(MODELS[short]), setup).total
        assert abs(seen["peak"] - planned) < OFF * planned
