"""Training by rewards of a real model, SmolLM2-135M: three unequal machines, with other shares at every step, do what
one does; and it learns what is asked of it."""

from pathlib import Path

import pytest

from tests.train import cluster

STEPS, ROWS = 20, 6
REWARDS = """
def full_stop(completions):
    return [float(text[-1]["content"].rstrip().endswith(".")) for text in completions]

def brief(completions):
    return [1 / (1 + len(text[-1]["content"])) for text in completions]
"""
OPTIONS = {
    **{"recipe": "grpo", "model": "smollm2-135m", "max_steps": STEPS, "rows_per_step": ROWS, "group": 3},
    **{"max_new_tokens": 6, "max_seq_length": 48, "lora_r": 8, "lora_alpha": 16, "learning_rate": 2e-4},
    **{"save_every": STEPS, "eval_rows": 2, "precision": "fp32", "wire": "fp32"},
}


def prompts(folder: Path, questions: list[str]) -> Path:
    """With a short system message, as the model's own is longer than all the rest."""
    asked = [[{"role": "system", "content": "Add."}, {"role": "user", "content": question}] for question in questions]
    return cluster.write_records(folder / "sums.jsonl", [{"prompt": prompt} for prompt in asked])


@pytest.mark.long
def test_three_unequal_machines_are_one(tmp_path):
    (tmp_path / "rewards.py").write_text(REWARDS)
    data = prompts(tmp_path, [f"{i} plus {3 * i}?{' Be brief.' * (i % 3)}" for i in range(24)])
    settings = {**OPTIONS, "dataset": data, "rewards": tmp_path / "rewards.py"}
    truth = cluster.train(tmp_path / "one", settings).steps()
    run = cluster.train(tmp_path / "three", {**settings, "shares": "5,2,1"}, 3, changed="moving_shares")
    assert len({tuple(step["shares"]) for step in run.steps()}) > 3
    assert len({step["rollout"]["reward"] for step in truth}) > STEPS / 2, "there is nothing to compare"
    for rank in range(3):
        for step, one in zip(run.steps(rank), truth, strict=True):
            assert step["rollout"]["answers_crc"] == one["rollout"]["answers_crc"], f"step {one['step']}"
            assert step["rollout"]["reward"] == pytest.approx(one["rollout"]["reward"], abs=1e-12)
            assert step["loss"] == pytest.approx(one["loss"], abs=1e-5)
            assert step["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
    adapters = [{e["step"]: e["adapter"] for e in run.events(rank, "proof")} for rank in range(3)]
    assert adapters[0] and adapters[1:] == adapters[:-1], "the same bits on all three"


FORM = {
    **{"rewards": r"0.5@length:2,0.5@format:-?\d+\.?", "rows_per_step": 16, "group": 8, "max_new_tokens": 10},
    **{"max_seq_length": 64, "max_steps": 12, "learning_rate": 1e-3, "eval_rows": 8, "eval_fraction": 0.2},
}


@pytest.mark.long
def test_a_form_is_learned_in_192_answers(tmp_path):
    """A number and nothing else, where the model tells how it adds: prompts that it was never trained on."""
    data = prompts(tmp_path, [f"What is {i % 23 + 3} + {i % 7 + 2}? Answer with the number only." for i in range(60)])
    run = cluster.train(tmp_path / "home", {**OPTIONS, **FORM, "dataset": data})
    before, after = [event["metrics"]["reward"] for event in run.events(kind="eval")]
    assert before < 0.3 and after > 0.8
