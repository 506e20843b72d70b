"""Answers of a model, drawn so that they do not depend on who draws them.

The likeliest token under scores with Gumbel noise *is* a token drawn by their probabilities. The noise is a function of
seed, rollout, row, place and token alone (repeatable_random.py): the same on any device, in any batch.
So a row has one answer, whichever machine makes it and whichever rows are made beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.models.hf import head_of, whole_of
from train.models.repeatable_random import key, uniform


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How tokens are drawn; `rollout` None: the likeliest one is taken."""

    seed: int
    rollout: int | None
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    tokens: list[int]
    """Up to the mark that ends it, and with it."""
    log_p: list[float]
    """The log-probability of each token, under the scores divided by the temperature."""

    @classmethod
    def none(cls) -> Answer:
        return cls(tokens=[], log_p=[])


Stays = Callable[[Sequence[int], Sequence[Answer]], Collection[int]]
"""Which of the answers that go on are made here to their end, by their places in what is asked and made so far."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def answers(
    model: nn.Module, prompts: dict[str, Tensor], rows: Sequence[int], draw: Draw, *, end_ids: Sequence[int], most: int,
    begun: Sequence[Answer] = (), stays: Stays | None = None,
) -> list[Answer]:  # fmt: skip
    """One for each prompt, which are padded on the left; `rows`: their numbers within the rollout. `begun`: what there
    is of each already, equally many tokens that stand behind its prompt. `stays` may drop some on the way."""
    whole, mask, ids = whole_of(model), prompts["attention_mask"], prompts["input_ids"]
    backbone, head, past = whole.get_decoder(), head_of(whole), None
    ends = torch.tensor(list(end_ids), device=ids.device)
    live = list(range(len(rows)))
    found = [Answer(tokens=[*one.tokens], log_p=[*one.log_p]) for one in begun] or [Answer.none() for _ in rows]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    for place in range(len(found[0].tokens), most):
        seen = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "past_key_values": past}
        out = backbone(**seen, use_cache=True)
        scores = head(inputs_embeds=out[0][:, -1:], use_cache=False).logits[:, 0].float() / draw.temperature
        past = out.past_key_values
        chosen = choose(scores, draw, [rows[at] for at in live], place)
        log_p = scores.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
        for at, token, value in zip(live, chosen.tolist(), log_p, strict=True):
            found[at].tokens.append(token)
            found[at].log_p.append(value)
        goes_on = ~torch.isin(chosen, ends)
        if stays:
            kept_here = stays([at for at, on in zip(live, goes_on.tolist(), strict=True) if on], found)
            goes_on &= torch.tensor([at in kept_here for at in live], device=ids.device)
        if not goes_on.any():
            break
        ids, positions = chosen[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        if not goes_on.all():  # what has ended costs nothing any more
            kept = goes_on.nonzero()[:, 0]
            past.batch_select_indices(kept)
            ids, positions, mask = ids[kept], positions[kept], mask[kept]
            live = [live[at] for at in kept.tolist()]
    return found


def choose(scores: Tensor, draw: Draw, rows: Sequence[int], place: int) -> Tensor:
    if draw.rollout is None:
        return scores.argmax(-1)
    keys = [key(draw.seed, draw.rollout, row, place) for row in rows]
    scores = likeliest(scores, draw.top_p).double()
    return (scores + gumbel(keys, scores.shape[-1], scores.device)).argmax(-1)


def likeliest(scores: Tensor, top_p: float) -> Tensor:
    """Without the tokens beyond those that have this probability together."""
    if top_p >= 1:
        return scores
    ordered, order = scores.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    return scores.masked_fill((before >= top_p).scatter(-1, order, before >= top_p), -torch.inf)


def gumbel(keys: Sequence[int], count: int, device: torch.device) -> Tensor:
    """Noise for each of `count` tokens, a line for each key."""
    return -torch.log(-torch.log(uniform(keys, count, device)))
