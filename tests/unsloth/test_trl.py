"""The loss of recipe=grpo against TRL's own trainer, on the same answers: TRL comes with unsloth's environment."""

import statistics
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from tests.train.reference import build
from train.models import policy
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.plan.settings.config import GrpoConfig
from train.recipes import rollout
from train.recipes.rollout import Facts, Made, Rollout

SAME = 1e-5
GROUP, MOST, TEMPERATURE = 4, 10, 0.8
REWARDS = [0.2, 1.0, 0.4, 0.4, 0.7, 0.7, 0.7, 0.7]
"""Of the second group all are alike: nothing is learned from it."""


def answers():
    chance = torch.Generator().manual_seed(5)

    def tokens(count):
        return torch.randint(3, 1024, (count,), generator=chance).tolist()

    prompts = [tokens(7), tokens(12)]
    return [(prompts[at // GROUP], tokens(2 + at)) for at in range(len(REWARDS))]


def ours(model, loss, beta):
    """As a step of the product computes it."""
    config = GrpoConfig(
        model="tiny", rewards="exact", dataset="x", loss=loss, beta=beta, group=GROUP, rows_per_step=8,
        max_new_tokens=MOST, temperature=TEMPERATURE,
    )  # fmt: skip
    facts = [
        Facts(reward, len(answer), False, 0, 0.0, ()) for reward, (_, answer) in zip(REWARDS, answers(), strict=True)
    ]
    targets = rollout.trained_tokens(config, facts)
    made = Rollout(
        facts=facts,
        targets=targets,
        advantages=rollout.advantages(REWARDS, GROUP, config.scale_rewards),
        weights=rollout.weights(config, targets),
        own={
            at: Made(
                prompt=prompt,
                answer=SimpleNamespace(tokens=answer),
                rewards=[],
                total=0.0,
                base_log_p=base_log_p(model, prompt, answer) if beta else [],
            )
            for at, (prompt, answer) in enumerate(answers())
        },
        told={},
        pad_id=0,
        made_s=0.0,
        waited_s=0.0,
    )
    batch = {name: torch.as_tensor(column) for name, column in made.batch(list(range(len(facts)))).items()}
    return policy.loss_sum(model, batch, temperature=TEMPERATURE, beta=beta) / int(targets.sum())


@torch.no_grad()
def base_log_p(model, prompt, answer):
    with model.disable_adapter():
        return log_p(model, torch.tensor([prompt + answer]), len(answer))[0][0].tolist()


def log_p(model, ids, count, mask=None):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -count - 1 : -1] / TEMPERATURE
    every = logits.log_softmax(-1)
    return every.gather(-1, ids[:, -count:, None])[..., 0], -(every.exp() * every).sum(-1)


def theirs(model, loss, beta):
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
    trainer = SimpleNamespace(
        model=model, loss_type=loss, beta=beta, max_completion_length=MOST, aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token",
        epsilon_low=0.2, epsilon_high=0.2, use_vllm=False, current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False, _metrics=defaultdict(lambda: defaultdict(list)),
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
    }
    return GRPOTrainer._compute_loss(trainer, model, given)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo"])
def test_loss_and_gradient_are_those_of_trl(loss, beta):
    model = build(model_folder("tiny"), 7)
    with torch.no_grad():
        for name, weight in sorted(trained_weights(model).items()):  # an adapter that has learned something
            weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))))
    found = []
    for of in (ours, theirs):
        model.zero_grad()
        total = of(model, loss, beta)
        total.backward()
        found.append((float(total.detach()), {n: w.grad.clone() for n, w in trained_weights(model).items()}))
    (our_loss, our_gradient), (their_loss, their_gradient) = found
    largest = max(float(gradient.abs().max()) for gradient in their_gradient.values())
    assert our_loss == pytest.approx(their_loss, abs=SAME) and largest > 0
    for name, gradient in their_gradient.items():
        torch.testing.assert_close(our_gradient[name], gradient, rtol=0, atol=SAME * largest)
