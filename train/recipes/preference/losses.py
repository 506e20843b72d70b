"""The losses of training by preferences. Each is a sum over rows, so that parts of a step can be summed; what a row's
loss needs of the step's other rows stands in the batch as a number that all nodes have.

    dpo, hinge, ipo   how much likelier than for the base the better answer is, against the worse one
    orpo              the better answer is learned as it is, and its odds are raised over the worse one's
    simpo             the mean log-probability of a token, ahead by gamma
    kto               single answers, each against how far the model is from its base at all
    reward            a head's score of the better answer, over that of the worse one (reward_head.py)

A batch has all first sequences and then all second ones, of loss=kto the first alone, with

    base_log_p   what the base says of each answer
    answer       1 where a label is of the answer; `labels` may have more (orpo learns the prompt too, as TRL does)
    learned      what the step's mean over learned tokens is multiplied by (orpo)
    length       tokens of each sequence (reward)
    good, kl     of single answers: what each is called, and the step's estimate (kto)
    of_good, of_bad   by what a row's figures are multiplied, so that means over all rows are those over the good
                      ones, and over the bad ones
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.models.label_log_p import placed_log_p
from train.plan.settings.preference import LOSSES, OF_A_TOKEN
from train.recipes.preference import reward_head

FIGURES = ("margin", "accuracy", "chosen_log_p", "rejected_log_p")
METRICS = dict.fromkeys(LOSSES, FIGURES) | {"reward": ("margin", "accuracy", "chosen_reward", "rejected_reward")}
"""What is measured beside each loss."""
AHEAD = 1e-4
"""A margin that is more than rounding: before the first update all are none."""
HALF = -0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class Loss:
    name: str
    beta: float
    label_smoothing: float = 0.0
    gamma: float = 0.0
    centre: float = 0.0
    """How strongly the two rewards of a pair are held around 0."""

    def of_difference(self, difference: Tensor) -> Tensor:
        """The loss of a pair by how far its better answer is ahead."""
        if self.name == "hinge":
            return torch.relu(1 - self.beta * difference)
        if self.name == "ipo":
            return (difference - 1 / (2 * self.beta)).square()
        ahead = self.beta * difference - (self.gamma if self.name == "simpo" else 0.0)
        smoothed = self.label_smoothing
        return -F.logsigmoid(ahead) * (1 - smoothed) - F.logsigmoid(-ahead) * smoothed


def measured(loss: Loss, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The summed loss, and behind it the sum of each of the loss's metrics."""
    if loss.name == "reward":
        return torch.stack(scored(loss, *reward_head.rewards(model, batch).chunk(2)))
    values = placed_log_p(model, batch)
    of_answers = values * batch["answer"]
    whole = of_answers.sum(-1)
    tokens = batch["answer"].sum(-1).clamp(min=1)
    if loss.name == "kto":
        return torch.stack(unpaired(loss, whole, batch))
    said = whole / tokens if loss.name in OF_A_TOKEN else whole
    good, bad = said.chunk(2)
    found = paired(loss, good, bad, tokens, batch)
    if loss.name == "orpo":
        learned = -(values.sum(-1).chunk(2)[0] * batch["learned"]).sum()
        found[0] = found[0] + learned
    return torch.stack(found)


def paired(loss: Loss, good: Tensor, bad: Tensor, tokens: Tensor, batch: dict[str, Tensor]) -> list[Tensor]:
    ahead = good - bad
    if "base_log_p" in batch:
        gains = [said - base for said, base in zip((good, bad), batch["base_log_p"].chunk(2), strict=True)]
        ahead = gains[0] - gains[1]
        by_token = [gain / count for gain, count in zip(gains, tokens.chunk(2), strict=True)]
        losses = loss.of_difference(by_token[0] - by_token[1] if loss.name == "ipo" else ahead)
    elif loss.name == "orpo":
        losses = -loss.beta * F.logsigmoid(ahead - (log_of_rest(good) - log_of_rest(bad)))
    else:
        losses = loss.of_difference(ahead)
    return with_figures(losses, loss.beta * ahead, good, bad)


def scored(loss: Loss, good: Tensor, bad: Tensor) -> list[Tensor]:
    losses = loss.of_difference(good - bad) + loss.centre * (good + bad).square()
    return with_figures(losses, loss.beta * (good - bad), good, bad)


def with_figures(losses: Tensor, margin: Tensor, good: Tensor, bad: Tensor) -> list[Tensor]:
    figures = [margin, (margin > AHEAD).to(margin), good, bad]
    return [losses.sum(), *(figure.detach().sum() for figure in figures)]


def log_of_rest(log_p: Tensor) -> Tensor:
    """log(1 - p), exact for a p near 0 and near 1."""
    return torch.where(log_p < HALF, torch.log1p(-log_p.exp()), torch.log(-torch.expm1(log_p)))


def unpaired(loss: Loss, said: Tensor, batch: dict[str, Tensor]) -> list[Tensor]:
    good, kl = batch["good"] == 1, batch["kl"]
    gain = said - batch["base_log_p"]
    above = torch.where(good, gain - kl, kl - gain)
    losses = 1 - torch.sigmoid(loss.beta * above)
    reward, said = loss.beta * gain.detach(), said.detach()
    of_good, of_bad = batch["of_good"], batch["of_bad"]
    figures = [
        reward * (of_good - of_bad),
        (loss.beta * above.detach() > AHEAD).to(reward),
        said * of_good,
        said * of_bad,
    ]
    return [losses.sum(), *(figure.sum() for figure in figures)]


@torch.no_grad()  # type: ignore[untyped-decorator]
def of_answers(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The log-probability of each whole answer, as the model is now."""
    found: Tensor = placed_log_p(model, batch).double().sum(-1)
    return found
