"""The loss of recipe=grpo against TRL's own trainer, on the same answers: TRL comes with unsloth's environment."""

import statistics
from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from tests.unsloth.against_trl import assert_alike, base, learned
from train.plan.settings.read_settings import GrpoConfig
from train.recipes.grpo import losses as policy
from train.recipes.grpo import rollout
from train.recipes.grpo.rollout import Facts, Row

GROUP, MOST, TEMPERATURE = 4, 10, 0.8
REWARDS = [0.2, 1.0, 0.4, 0.4, 0.7, 0.7, 0.7, 0.7]
"""Of the second group all are alike: nothing is learned from it."""


@dataclass(frozen=True)
class Case:
    loss: str
    beta: float = 0.0
    low: float = 0.2
    high: float = 0.2
    old: bool = False
    """Whether another model made the answers than is trained on them."""


def answers():
    chance = torch.Generator().manual_seed(5)

    def tokens(count):
        return torch.randint(3, 1024, (count,), generator=chance).tolist()

    prompts = [tokens(7), tokens(12)]
    return [(prompts[at // GROUP], tokens(2 + at)) for at in range(len(REWARDS))]


def ours(model, case, old):
    """As a step of the product computes it: its loss, and the share of its tokens that is beyond the bounds."""
    config = GrpoConfig(
        model="tiny", rewards="exact", dataset="x", loss=case.loss, beta=case.beta, group=GROUP, rows_per_step=8,
        max_new_tokens=MOST, temperature=TEMPERATURE, steps_per_rollout=2, epsilon=case.low, epsilon_high=case.high,
    )  # fmt: skip
    facts = [Facts(reward, len(answer), False, 0.0, ()) for reward, (_, answer) in zip(REWARDS, answers(), strict=True)]
    rows = [
        Row(
            prompt=prompt,
            tokens=answer,
            old_log_p=old[at][: len(answer)].tolist() if case.old else [],
            base_log_p=base_log_p(model, prompt, answer) if case.beta else [],
        )
        for at, (prompt, answer) in enumerate(answers())
    ]
    made = rollout.rollout_of(config, 0, facts, rows, told={}, pad_id=0)
    batch = {name: torch.as_tensor(column) for name, column in made.batch(list(range(len(facts)))).items()}
    low, high = config.bounds
    how = policy.Loss(temperature=TEMPERATURE, beta=case.beta, low=low, high=high, whole_answers=config.loss == "gspo")
    loss, clipped = policy.measured(model, batch, how=how)
    return loss / int(made.targets.sum()), made.told_of([float(clipped)])["rollout"]["clipped"]


@torch.no_grad()
def base_log_p(model, prompt, answer):
    with model.disable_adapter():
        return log_p(model, torch.tensor([prompt + answer]), len(answer))[0][0].tolist()


def log_p(model, ids, count, mask=None):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -count - 1 : -1] / TEMPERATURE
    every = logits.log_softmax(-1)
    return every.gather(-1, ids[:, -count:, None])[..., 0], -(every.exp() * every).sum(-1)


def theirs(model, case, old):
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415  takes seconds

    made = answers()
    longest, most = max(len(prompt) for prompt, _ in made), max(len(answer) for _, answer in made)
    ids = [[0] * (longest - len(p)) + p + a + [0] * (most - len(a)) for p, a in made]
    mask = [[0] * (longest - len(p)) + [1] * len(p + a) + [0] * (most - len(a)) for p, a in made]
    ids, mask = torch.tensor(ids), torch.tensor(mask)
    advantages = [
        (reward - statistics.fmean(group)) / (statistics.stdev(group) + 1e-4)
        for group in (REWARDS[:GROUP], REWARDS[GROUP:])
        for reward in group
    ]
    with torch.no_grad(), model.disable_adapter():
        base, _ = log_p(model, ids, most, mask)
    metrics = defaultdict(lambda: defaultdict(list))
    trainer = SimpleNamespace(
        model=model, loss_type="grpo" if case.loss == "gspo" else case.loss, beta=case.beta,
        importance_sampling_level="sequence" if case.loss == "gspo" else "token", max_completion_length=MOST,
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        epsilon_low=case.low, epsilon_high=case.high, use_vllm=False, current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False, _metrics=metrics,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x
        ),
        _get_per_token_logps_and_entropies=lambda model, ids, mask, count, **_: (*log_p(model, ids, count, mask), None),
    )  # fmt: skip
    given = {
        "prompt_ids": ids[:, :longest],
        "prompt_mask": mask[:, :longest],
        "completion_ids": ids[:, longest:],
        "completion_mask": mask[:, longest:],
        "advantages": torch.tensor(advantages),
        "ref_per_token_logps": base,
        "num_items_in_batch": mask[:, longest:].sum(),
        **({"old_per_token_logps": old} if case.old else {}),
    }
    loss = GRPOTrainer._compute_loss(trainer, model, given)
    return loss, metrics["train"]["clip_ratio/region_mean"][0]


def known_before(model):
    """Log-probabilities that a model gave which has learned since: ratios from 0.6 to 1.6."""
    chance = torch.Generator().manual_seed(11)
    most = max(len(answer) for _, answer in answers())
    found = torch.zeros(len(REWARDS), most)
    for at, (prompt, answer) in enumerate(answers()):
        with torch.no_grad():
            now = log_p(model, torch.tensor([prompt + answer]), len(answer))[0][0]
        found[at, : len(answer)] = now + torch.rand(len(answer), generator=chance) - 0.5
    return found


CASES = [
    *(Case(loss, beta) for loss in ("dapo", "grpo", "dr_grpo") for beta in (0.0, 0.1)),
    *(Case(loss, beta, 0.2, 0.28, old=True) for loss in ("dapo", "grpo", "dr_grpo") for beta in (0.0, 0.1)),
    *(Case("gspo", beta, 0.005, 0.01, old=old) for beta in (0.0, 0.1) for old in (False, True)),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_loss_and_gradient_are_those_of_trl(case):
    model = learned(base())
    old, clipped = known_before(model), []

    def loss_of(compute):
        def loss(model):
            total, beyond = compute(model, case, old)
            clipped.append(beyond)
            return total

        return loss

    assert_alike(model, loss_of(ours), loss_of(theirs))
    assert (clipped[0] > 0) == case.old
    if case.loss != "gspo":  # there TRL counts answers, and we their tokens
        assert clipped[0] == pytest.approx(clipped[1])
