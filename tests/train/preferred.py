"""The truth that runs with recipe=preference are compared with: plain PyTorch, one process, one answer at a time, the
base a model of its own. It shares nothing with the product but the rows on disk and the first weights."""

import hashlib
import json
import math

import numpy as np
import torch

from tests.train.reference import build, factor, order
from train.models.model_files import model_folder

BETA = {"simpo": 2.0, "reward": 1.0}
GAMMA = 1.0
RATE, SCORING_RATE = 2e-3, 5e-4
"""Where a sum of gradients is nearly 0, its rounding decides the sign of Adam's first step, which is as long as the
rate: a score shows that as it is, a difference of log-probabilities hardly."""


def records(paired, count=26):
    """Prompts and answers of several lengths."""
    found = []
    for i in range(count):
        prompt = f"What is {i} plus {3 * i}?{' Please.' * (i % 4)}"
        kind, curt = f"It is {4 * i}, gladly.{' Anything else?' * (i % 3)}", f"{4 * i}{'!' * (i % 5)}"
        if paired:
            found.append({"prompt": prompt, "chosen": kind, "rejected": curt})
        else:
            found.append({"prompt": prompt, "completion": kind if i % 3 else curt, "label": bool(i % 3)})
    return found


def make_data(folder, *, paired):
    from train.plan.settings.read_settings import PreferenceConfig  # noqa: PLC0415
    from train.recipes.preference.rows import prepare  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records(paired)))
    config = PreferenceConfig(
        dataset=str(folder / "answers.jsonl"), max_seq_length=96, eval_fraction=0.25, loss="dpo" if paired else "kto"
    )
    return prepare(config, lambda _: None, out=str(folder / "rows"))


def rows_of(data, split="train"):
    """Of each row both sequences, as tokens and where its answer begins; and its label."""
    from train.recipes.preference.rows import open_pairs  # noqa: PLC0415

    paired = json.loads((data / "index.json").read_text())["paired"]
    rows = open_pairs(data, split, paired=paired)
    packed, found = rows.packed, []
    for row in range(len(rows)):
        both = []
        for sample in range(2 * row, 2 * row + 2):
            part = slice(int(packed.samples[sample]), int(packed.samples[sample + 1]))
            both.append((packed.tokens[part].astype(int).tolist(), packed.trained[part].tolist().index(1)))
        found.append((*both, bool(rows.labels[row])))
    return found


def train(
    data,
    *,
    steps,
    loss="dpo",
    rows_per_step=8,
    clip=0.3,
    seed=3407,
    smoothed=0.0,
    centre=0.0,
    of_steps=None,
    nf4=False,
):
    """Of each step its loss, gradient norm and figures; of the last weights the held-out ones; and the weights."""
    rows, beta, rate = rows_of(data), BETA.get(loss, 0.1), SCORING_RATE if loss == "reward" else RATE
    model, base = (build(model_folder("tiny"), seed, nf4=nf4) for _ in range(2))
    if loss == "reward":
        model.base_model.model.score = first_head(seed, model.config.hidden_size)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    stream, found, of_steps = order(rows, seed), [], of_steps or steps
    for step in range(steps):
        chosen = [rows[int(at)] for at in stream[step * rows_per_step : (step + 1) * rows_per_step]]
        total, figures = total_loss(model, base, chosen, loss, beta, smoothed, centre)
        optimizer.zero_grad()
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(weights, clip))
        optimizer.param_groups[0]["lr"] = rate * factor(step, min(5, of_steps // 10), of_steps)
        optimizer.step()
        found.append({"loss": float(total.detach()), "norm": norm, **figures})
    with torch.no_grad():
        total, figures = total_loss(model, base, rows_of(data, "eval"), loss, beta, smoothed, centre)
    held_out = {"loss": float(total), **figures}
    return found, held_out, [p for _, p in sorted(model.named_parameters()) if p.requires_grad]


def total_loss(model, base, rows, loss, beta, smoothed, centre):  # noqa: PLR0917
    if loss == "kto":
        return of_single(model, base, rows, beta)
    if loss == "reward":
        return of_scores(model, rows, centre)
    losses, margins, good, bad, learned = [], [], [], [], []
    for (better, at), (worse, there), _ in rows:
        own = [log_p(model, *one) for one in ((better, at), (worse, there))]
        with torch.no_grad():
            theirs = [log_p(base, *one).sum() for one in ((better, at), (worse, there))]
        sums, means = [one.sum() for one in own], [one.mean() for one in own]
        said = means if loss in ("orpo", "simpo") else sums
        ahead = said[0] - said[1] if loss in ("orpo", "simpo") else sums[0] - theirs[0] - sums[1] + theirs[1]
        if loss == "ipo":
            each = [(one - other) / len(log) for one, other, log in zip(sums, theirs, own, strict=True)]
            losses.append((each[0] - each[1] - 1 / (2 * beta)) ** 2)
        elif loss == "hinge":
            losses.append(torch.clamp(1 - beta * ahead, min=0))
        elif loss == "orpo":
            odds = [one - torch.log(1 - one.exp()) for one in means]
            losses.append(-beta * torch.log(torch.sigmoid(odds[0] - odds[1])))
            learned.append(-log_p(model, better, 1))
        else:
            over = beta * ahead - (GAMMA if loss == "simpo" else 0)
            losses.append(-(1 - smoothed) * torch.log(torch.sigmoid(over)) - smoothed * torch.log(torch.sigmoid(-over)))
        margins.append(beta * ahead.detach())
        good.append(said[0].detach())
        bad.append(said[1].detach())
    total = torch.stack(losses).mean() + (torch.cat(learned).mean() if learned else 0.0)
    right = sum(margin > 1e-4 for margin in margins) / len(rows)
    return total, {
        "margin": mean(margins),
        "accuracy": float(right),
        "chosen_log_p": mean(good),
        "rejected_log_p": mean(bad),
    }


def first_head(seed, size):
    """Normal numbers from a hash of the seed and its name."""
    seed = int.from_bytes(hashlib.blake2b(f"{seed} score".encode(), digest_size=8).digest()) % 2**63
    head = torch.nn.Linear(size, 1, bias=False)
    head.weight.data = torch.tensor(np.random.Generator(np.random.PCG64(seed)).normal(0, 0.02, (1, size))).float()
    return head


def of_scores(model, rows, centre):
    """A score is the head's, of the state behind the last token."""
    decoder, head = model.base_model.model.model, model.base_model.model.score
    good, bad = (
        torch.stack([head(decoder(torch.tensor([row[which][0]]))[0][0, -1])[0] for row in rows]) for which in (0, 1)
    )
    total = (-torch.log(torch.sigmoid(good - bad)) + centre * (good + bad) ** 2).mean()
    return total, {
        "margin": mean((good - bad).detach()),
        "accuracy": float((good - bad > 1e-4).double().mean()),
        "chosen_reward": mean(good.detach()),
        "rejected_reward": mean(bad.detach()),
    }


def of_single(model, base, rows, beta):
    with torch.no_grad():
        away = [log_p(model, *other).sum() - log_p(base, *other).sum() for _, other, _ in rows]
        kl = max(0.0, mean(away))
    losses, rewards, said, right = [], {True: [], False: []}, {True: [], False: []}, 0
    for own, _, good in rows:
        whole = log_p(model, *own).sum()
        with torch.no_grad():
            gain = whole - log_p(base, *own).sum()
        gain = whole - (whole - gain).detach()
        above = gain - kl if good else kl - gain
        losses.append(1 - torch.sigmoid(beta * above))
        rewards[good].append(beta * gain.detach())
        said[good].append(whole.detach())
        right += bool(beta * above > 1e-4)
    figures = {
        "margin": mean(rewards[True]) - mean(rewards[False]), "accuracy": right / len(rows),
        "chosen_log_p": mean(said[True]), "rejected_log_p": mean(said[False]), "kl": kl,
    }  # fmt: skip
    return torch.stack(losses).mean(), figures


def mean(values):
    return math.fsum(float(value) for value in values) / len(values)


def log_p(model, tokens, at):
    """Of each token from `at` on."""
    logits = model(input_ids=torch.tensor([tokens])).logits[0, at - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[at:])[:, None])[:, 0]
