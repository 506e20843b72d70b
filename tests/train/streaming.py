"""What a model trains to, and the memory that it takes: for the tests of streamed weights, also as a process of its own
(streaming.py FOLDER WEIGHTS FORM, or FOLDER 4-8 FORM for a part of a model that is cut)."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch

from train.models.backends import ModelSpec, get
from train.models.weights import trained_weights

ROWS, TOKENS = 2, 40


def build(folder: Path | str, **more) -> torch.nn.Module:
    return get("hf").build(ModelSpec(folder=str(folder), lora_r=8, **more))


def batch(number: int) -> dict[str, torch.Tensor]:
    """Two samples in each row."""
    ids = torch.randint(3, 900, (ROWS, TOKENS), generator=torch.Generator().manual_seed(number))
    places = torch.cat([torch.arange(TOKENS // 4), torch.arange(TOKENS - TOKENS // 4)]).expand(ROWS, TOKENS)
    return {"input_ids": ids, "labels": ids.where(ids > 100, -100), "position_ids": places}


def train(model: torch.nn.Module, steps: int = 4) -> tuple[list[float], str]:
    """Losses, and a hash of the adapter: two micro-batches a step, an evaluation in the middle."""
    weights = list(trained_weights(model).values())
    optimizer = torch.optim.AdamW(weights, lr=2e-3, weight_decay=0.0)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for micro in (2 * step, 2 * step + 1):
            loss = get("hf").loss_sum(model, batch(micro))
            (loss / 100).backward()
            losses.append(loss.item())
        optimizer.step()
        if step == steps // 2:
            with torch.no_grad():
                losses.append(get("hf").loss_sum(model.eval(), batch(99)).item())
            model.train()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in weights))
    return losses, digest.hexdigest()


def train_part(model: torch.nn.Module) -> None:
    """Of a stage in the middle: what comes in and what comes back are made up."""
    part, backbone = model.get_base_model().part, model.get_base_model().get_decoder()
    optimizer = torch.optim.AdamW(trained_weights(model).values(), lr=2e-3, weight_decay=0.0)
    for step in range(2):
        hidden = torch.randn(ROWS, TOKENS, model.config.hidden_size, requires_grad=True)
        out = part.states(backbone, batch(step), hidden)
        out.backward(torch.ones_like(out))
        optimizer.step()


def memory_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1e3


if __name__ == "__main__":
    import bitsandbytes  # noqa: F401
    import peft  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401

    folder, weights, form = sys.argv[1:]
    layers = tuple(map(int, weights.split("-"))) if "-" in weights else None
    held = {"layers": layers} if layers else {"weights": weights}
    train(build(sys.argv[1] + "/warm", load_in=form), 1)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    model = build(folder, load_in=form, gradient_checkpointing="true", **held)
    losses, adapter = train(model, 2) if not layers else (train_part(model), "")
    print(json.dumps({"peak_mb": memory_mb("VmHWM") - before, "losses": losses, "adapter": adapter}))
