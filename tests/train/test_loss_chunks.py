"""The loss of hf: in chunks of target tokens, whatever a family does to its scores, without ever holding all scores."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from tests.train import families
from train.models import hf
from train.models.backends import ModelSpec

FAMILIES = {
    "llama": {},
    "qwen3": {},
    "gemma2": {"final_logit_softcapping": 3.0},
    "granite": {"logits_scaling": 4.0, "embedding_multiplier": 3.0},
    "cohere": {"logit_scale": 0.1},
}
CHUNK = 80
"""More than the models are wide: their output layer ends on the vocabulary, too."""


def whole_loss(model, batch):
    """As textbooks have it: all scores at once."""
    scores = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits[:, :-1]
    return F.cross_entropy(scores.float().flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")


def batch(targets_from=300):
    ids = torch.randint(3, 900, (4, 64), generator=torch.Generator().manual_seed(1))
    labels = ids.where(ids > targets_from, -100)
    return {"input_ids": ids, "labels": labels, "position_ids": torch.arange(64).expand(4, 64)}


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(hf, "LOSS_CHUNK_TOKENS", CHUNK)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_neither_loss_nor_gradient(family, method, tmp_path):
    folder = families.make(family, tmp_path, **FAMILIES[family])
    model = hf.build(ModelSpec(folder=str(folder), lora_r=4, method=method))
    found, wanted = hf.loss_sum(model, batch()), whole_loss(model, batch())
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
    gradients = gradient(model, found), gradient(model, wanted)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(hf.loss_sum(model, batch()), wanted, rtol=1e-6, atol=0)


def test_a_class_that_hands_its_backbone_the_tokens_by_place_has_the_same_loss():
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_embd=64, n_layer=2, n_head=4, n_positions=64)).eval()
    torch.testing.assert_close(hf.loss_sum(model, batch()), whole_loss(model, batch()), rtol=1e-6, atol=0)


def test_rows_without_a_target_lose_nothing(tmp_path):
    model = hf.build(ModelSpec(folder=str(families.make("llama", tmp_path)), lora_r=4))
    loss = hf.loss_sum(model, batch(targets_from=900))
    assert loss.item() == 0 and not gradient(model, loss).any()


class Largest(TorchDispatchMode):
    """The most scores that are there in one tensor."""

    rows = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.shape[-1:] == (1024,):
            self.rows = max(self.rows, made.numel() // 1024)
        return made


def test_scores_exist_for_a_chunk_at_a_time(tmp_path):
    model = hf.build(ModelSpec(folder=str(families.make("llama", tmp_path)), lora_r=4))
    with Largest() as forward:
        loss = hf.loss_sum(model, batch())
    with Largest() as backward:
        loss.backward()
    assert (forward.rows, backward.rows) == (CHUNK, CHUNK)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        hf.loss_sum(model, batch())
    assert max(kept) < CHUNK * 1024, "scores are kept for the backward pass"
