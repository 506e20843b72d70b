"""The truth that runs with recipe=grpo are compared with: plain PyTorch, one process, one answer at a time, each token
by the whole of what is before it. It shares nothing with the product but the data on disk and the first weights: the
noise, the rewards, their comparison, losses and update are its own."""

import hashlib
import json
import statistics
import zlib

import numpy as np
import torch
from transformers import AutoTokenizer

from tests.train.reference import build, factor
from train.models.model_files import model_folder
from train.recipes.grpo.rows import open_prompts

REWARDS = """
def vowels(completions, level, **columns):
    return [n * sum(letter in "aeiou" for letter in text) / (1 + len(text)) for text, n in zip(completions, level)]

def _helper():
    pass

def short(prompts, completions):
    return [1 / (1 + len(text)) for text in completions]
"""
MASK = (1 << 64) - 1


def make_data(folder, records=12):
    """Prompts of several lengths with a column; made into rows in which an eighth of all tokens end an answer: the
    model's first weights are random, and it would hardly ever come to an end by itself."""
    from train.plan.settings.read_settings import GrpoConfig  # noqa: PLC0415
    from train.recipes.grpo.rows import prepare  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.py").write_text(REWARDS)
    lines = [{"prompt": f"What is {i} plus {3 * i}?{' Please.' * (i % 4)}", "level": 1 + i % 3} for i in range(records)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = GrpoConfig(
        dataset=str(folder / "sums.jsonl"), rewards=str(folder / "rewards.py"), max_seq_length=96, max_new_tokens=10,
        eval_fraction=0.25,
    )  # fmt: skip
    rows = prepare(config, lambda _: None, out=str(folder / "rows"))
    index = json.loads((rows / "index.json").read_text())
    (rows / "index.json").write_text(json.dumps(index | {"end_ids": list(range(2, 1024, 8))}))
    return rows


def rewards_of(text, level):
    return level * sum(letter in "aeiou" for letter in text) / (1 + len(text)) + 1 / (1 + len(text))


def train(data, *, steps, rows_per_step=8, group=4, most=10, loss="dapo", scale="group", beta=0.0, temperature=1.0,
          top_p=1.0, mask_overlong=False, rate=2e-3, clip=0.3, seed=3407, reward=rewards_of, reuse=1,
          low=0.2, high=0.2, of_steps=None):  # fmt: skip
    """Of each step its reward, answers and gradient norm; and the last weights."""
    rows = open_prompts(data, "train", most)
    model, tokenizer = build(model_folder("tiny"), seed), AutoTokenizer.from_pretrained(model_folder("tiny"))
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    stream = np.concatenate(
        [np.random.Generator(np.random.PCG64([seed, e])).permutation(len(rows)) for e in range(200)]
    )
    found, count = [], rows_per_step // group
    made, then, kl = [], [], 0.0
    for step in range(steps):
        if step % reuse == 0:
            made = []
        for row in range(rows_per_step) if step % reuse == 0 else ():
            index = int(stream[step // reuse * count + row // group])
            prompt = rows.prompt(index)
            answer = drawn(model, prompt, rows.end_ids, most, (seed, step, row), temperature, top_p)
            text = tokenizer.decode(answer, skip_special_tokens=True)
            made.append((prompt, answer, reward(text, rows.record(index)["columns"]["level"])))
        now = [log_p_of(model, prompt, answer, temperature) for prompt, answer, _ in made]
        then = [log_p.detach() for log_p in now] if step % reuse == 0 else then
        ratios, beyond = bounded(now, then, loss, low, high)
        total, away = total_loss(
            model, made, now, ratios, rows.end_ids, most, group, loss, scale, beta, temperature, mask_overlong
        )
        kl = away if step % reuse == 0 else kl
        optimizer.zero_grad()
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(weights, clip))
        optimizer.param_groups[0]["lr"] = rate * factor(step, min(5, (of_steps or steps) // 10), of_steps or steps)
        optimizer.step()
        crcs = [zlib.crc32(np.array(answer, dtype="<i4").tobytes()) for _, answer, _ in made]
        found.append({
            "reward": statistics.fmean(one[2] for one in made),
            "answers": zlib.crc32(np.array(crcs, dtype="<u4").tobytes()),
            "norm": norm,
            "loss": float(total.detach()),
            "kl": kl,
            "clipped": beyond([reward for *_, reward in made], group),
            "lengths": [len(answer) for _, answer, _ in made],
        })  # fmt: skip
    return found, [p for _, p in sorted(model.named_parameters()) if p.requires_grad]


@torch.no_grad()
def drawn(model, prompt, end_ids, most, counters, temperature, top_p):  # noqa: PLR0917
    answer = []
    while len(answer) < most and (not answer or answer[-1] not in end_ids):
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, -1].double() / temperature
        order = logits.argsort(descending=True)
        shares = logits.softmax(-1)[order]
        logits[order[shares.cumsum(0) - shares >= top_p]] = -torch.inf
        answer.append(int((logits + noise(len(logits), *counters, len(answer))).argmax()))
    return answer


def noise(count, *counters):
    """SplitMix64 in Python's own numbers, without an end."""
    start = int.from_bytes(hashlib.blake2b(" ".join(map(str, counters)).encode(), digest_size=8).digest())
    numbers = []
    for token in range(1, count + 1):
        x = (start + token * 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(((x ^ (x >> 31)) >> 11) + 0.5)
    uniform = torch.tensor(numbers, dtype=torch.float64) * 2.0**-53
    return -torch.log(-torch.log(uniform))


def bounded(now, then, loss, low, high):
    """Of each answer, token by token, what its ratio is and what it becomes within its bounds; and a function that says
    by the rewards which share of all tokens is beyond them."""
    ratios = [(a - b).exp() for a, b in zip(now, then, strict=True)]
    if loss == "gspo":
        ratios = [(a - b).mean().exp().expand(len(a)) for a, b in zip(now, then, strict=True)]

    def beyond(rewards, group):
        found = 0
        for at, ratio in enumerate(ratios):
            others = rewards[at // group * group :][:group]
            better = rewards[at] - statistics.fmean(others) if len(set(others)) > 1 else 0.0
            found += int((ratio > 1 + high).sum()) if better > 0 else int((ratio < 1 - low).sum()) if better < 0 else 0
        return found / sum(map(len, ratios))

    return [(ratio, ratio.clamp(1 - low, 1 + high)) for ratio in ratios], beyond


def total_loss(  # noqa: PLR0917
    model, made, now, ratios, end_ids, most, group, loss, scale, beta, temperature, mask_overlong
):
    rewards = [reward for _, _, reward in made]
    sums, lengths, apart = [], [], []
    for number, (prompt, answer, reward) in enumerate(made):
        first = number // group * group
        others = rewards[first : first + group]
        spread = {"group": others, "batch": rewards, "none": None}[scale]
        better = reward - statistics.fmean(others)
        advantage = 0.0 if len(set(others)) == 1 else better / (statistics.stdev(spread) + 1e-4 if spread else 1.0)
        log_p, (ratio, within) = now[number], ratios[number]
        with torch.no_grad(), model.disable_adapter():
            base = log_p_of(model, prompt, answer, temperature)
        away = (base - log_p).exp() - (base - log_p) - 1
        kept = 0.0 if mask_overlong and len(answer) == most and answer[-1] not in end_ids else 1.0
        sums.append(kept * (beta * away - torch.minimum(ratio * advantage, within * advantage)).sum())
        apart.append(away.detach().sum())
        lengths.append(len(answer) * kept)
    kl = float(sum(apart)) / sum(len(answer) for _, answer, _ in made)
    if loss == "dapo":
        return sum(sums) / max(1, sum(lengths)), kl
    if loss in ("grpo", "gspo"):
        return sum(total / max(1, length) for total, length in zip(sums, lengths, strict=True)) / len(made), kl
    return sum(sums) / (most * len(made)), kl


def log_p_of(model, prompt, answer, temperature):
    logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
