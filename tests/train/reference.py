"""The truth that every run is compared with: plain PyTorch, one process, one batch a step. It shares nothing with the
loop but the data on disk and the first weights; it has its own row order, loss, schedule and update. A base in 4 bit is
here an ordinary one of the rounded weights."""

import itertools
import math

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from train.data.rows import open_rows

OPTIONS = {
    **{"model": "tiny", "rows_per_step": 8, "lora_r": 8, "lora_alpha": 16},
    **{"learning_rate": 2e-3, "grad_clip": 0.3, "wire": "fp32"},
}
"""Of a run that trains as `losses` does."""


def losses(
    model_folder,
    data,
    *,
    built=None,
    steps,
    rows_per_step,
    rate=2e-3,
    warmup=None,
    clip=0.3,
    seed=3407,
    full=False,
    nf4=False,
    of_steps=None,
    ratio=1.0,
):
    """Of the first `steps` steps of a run of `of_steps` (as many, if none is given). `built`: the model with its first
    adapter, where transformers and PEFT alone build another one. `ratio`: how much faster lora_B learns."""
    rows = open_rows(data)
    warmup = min(5, (of_steps or steps) // 10) if warmup is None else warmup
    model = built or build(model_folder, seed, full, nf4)
    weights = [p for p in model.parameters() if p.requires_grad]
    fast = [p for name, p in model.named_parameters() if p.requires_grad and ratio != 1 and "lora_A" not in name]
    slow = [p for p in weights if all(p is not other for other in fast)]
    groups = [{"params": some} for some in (slow, fast) if some]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.0)
    stream = order(rows, seed)
    found = []
    for step in range(steps):
        total, count = summed_loss(model, rows, stream[step * rows_per_step : (step + 1) * rows_per_step])
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, clip)
        for group, times in zip(optimizer.param_groups, (1, ratio), strict=False):
            group["lr"] = times * rate * factor(step, warmup, of_steps or steps)
        optimizer.step()
        found.append(loss.item())
    return found


def build(model_folder, seed, full=False, nf4=False, **more):
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager")
    if full:
        return model
    if nf4:
        round_to_nf4(model)
    torch.manual_seed(seed)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **more)
    return get_peft_model(model, lora)


def round_to_nf4(model):
    """Every linear layer but the last, as QLoRA has it: NF4 in blocks of 64, their scales quantised once more."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit  # noqa: PLC0415  a node has none

    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            codes, state = quantize_4bit(layer.weight.data, quant_type="nf4", compress_statistics=True)
            layer.weight.data = dequantize_4bit(codes, state)


def order(rows, seed):
    return np.concatenate([np.random.Generator(np.random.PCG64([seed, e])).permutation(len(rows)) for e in range(99)])


def factor(step, warmup, of_steps):
    progress = (step - warmup) / max(1, of_steps - warmup)
    return (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * progress))


def summed_loss(model, rows, chosen):
    """Every sample in a line of its own, and padding only behind its end: packing must make no difference."""
    samples = [
        slice(a, b)
        for row in chosen
        for a, b in itertools.pairwise(rows.samples[rows.rows[row] : rows.rows[row + 1] + 1])
    ]
    tokens = padded([rows.tokens[sample].astype(int) for sample in samples])
    wanted = padded([rows.trained[sample].astype(int) for sample in samples])[:, 1:]
    scores = model(input_ids=tokens, use_cache=False).logits[:, :-1].log_softmax(-1)
    return -(scores.gather(2, tokens[:, 1:, None])[..., 0] * wanted).sum(), int(wanted.sum())


def padded(lines):
    return nn.utils.rnn.pad_sequence([torch.tensor(line) for line in lines], batch_first=True)


def local_losses(
    model_folder, data, *, steps, counts, round_steps, together, outer_rate=0.7, momentum=0.5, rate=2e-3, clip=0.3
):
    """Local steps with an outer Nesterov step, one process playing all nodes: each has a model and an optimizer of its
    own. `counts(step)` is the nodes' rows. A round's deltas arrive where the next one ends, and at once after the steps
    in `together`."""
    rows, warmup, seed = open_rows(data), min(5, steps // 10), 3407
    nodes = [Node(build(model_folder, seed), rate) for _ in counts(0)]
    common = nodes[0].now().requires_grad_()
    outer = torch.optim.SGD([common], lr=outer_rate, momentum=momentum, nesterov=momentum > 0)
    stream, found, position, trained, began, sent = order(rows, seed), [], 0, [0] * len(nodes), 0, []
    for step in range(steps):
        total, whole = 0.0, 0
        for node, count in enumerate(counts(step)):
            mine, position = stream[position : position + count], position + count
            if not count:
                continue
            loss, tokens = summed_loss(nodes[node].model, rows, mine)
            nodes[node].step(loss / tokens, clip, rate * factor(step, warmup, steps))
            total, whole, trained[node] = total + loss.item(), whole + tokens, trained[node] + tokens
        found.append(total / whole)
        if step + 1 - began < round_steps and step + 1 < steps:
            continue
        arrive(outer, common, nodes, sent)
        part = [tokens / sum(trained) for tokens in trained]
        sent = [(share, as_sent(common.detach() - node.now())) for share, node in zip(part, nodes, strict=True)]
        if step + 1 in together:
            arrive(outer, common, nodes, sent)
            sent = []
            for node in nodes:
                node.take(common.detach())
        began, trained = step + 1, [0] * len(nodes)
    return found


class Node:
    """A model and its optimizer; the weights are one vector, in the order of their names."""

    def __init__(self, model, rate):
        self.model = model
        named = {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}
        self.weights = [named[name] for name in sorted(named)]
        self.optimizer = torch.optim.AdamW(self.weights, lr=rate, weight_decay=0.0)

    def step(self, loss, clip, rate):
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, clip)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()

    def now(self):
        return nn.utils.parameters_to_vector(self.weights).detach().clone()

    def take(self, vector):
        nn.utils.vector_to_parameters(vector.clone(), self.weights)


def arrive(outer, common, nodes, sent):
    """The outer step along the average of what was sent; each node keeps what it did not send."""
    if not sent:
        return
    before = common.detach().clone()
    common.grad = sum(share * delta for share, delta in sent)
    outer.step()
    for node, (_, delta) in zip(nodes, sent, strict=True):
        node.take(node.now() + delta + common.detach() - before)


def as_sent(delta):
    """Rounded to 15 levels of the largest of each 64."""
    found = []
    for block in delta.split(64):
        level = float((block.abs().max() / 7).bfloat16())
        found.append(torch.round(block / level).clamp(-7, 7) * level if level else torch.zeros_like(block))
    return torch.cat(found)


def largest_error(found, truth):
    """Of losses, as a part of each."""
    return max(abs(a - b) / b for a, b in zip(found, truth, strict=True))


def assert_one_model(run, alone, within=1e-6):
    """Every rank has the curve of the run `alone`, and has made the same model."""
    ranks = range(len(run.processes))
    for rank in ranks:
        assert largest_error(run.losses(rank), alone.losses()) < within
    assert len({(run.result(rank, "model") / "model.safetensors").read_bytes() for rank in ranks}) == 1
