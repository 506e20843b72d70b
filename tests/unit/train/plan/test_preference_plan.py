"""recipe=preference as a launch sees it: its settings, how its rows are made, and how much memory a pair takes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import decided, handed_on, look
from tests.unit.train.plan.test_grpo_plan import FACTS
from train.errors import BadInput
from train.plan.model.memory import Setup, changes_that_fit, memory
from train.plan.placement.fit import setup_for
from train.plan.settings import request
from train.plan.settings.read_settings import load_config


def config(**values: Any) -> Any:
    return load_config({"recipe": "preference", **values})


def test_what_is_not_set_follows_from_the_loss():
    assert (config().loss, config().beta, config().learning_rate, config().pack) == ("dpo", 0.1, 2e-5, False)
    assert (config(loss="simpo").beta, config(loss="simpo", beta=3).beta) == (2.0, 3.0)
    assert config(loss="orpo", method="full").learning_rate == 1e-6
    assert [config(loss=loss).compares for loss in ("dpo", "ipo", "kto", "orpo", "simpo")] == [1, 1, 1, 0, 0]
    scoring = config(loss="reward")
    assert (scoring.learning_rate, scoring.paired, scoring.compares, scoring.scores) == (1e-4, True, False, True)
    assert config(loss="reward", beta=1.0) == scoring, "as it is written into a run's files"
    assert config().row_words == "16 pairs of answers of up to 512 tokens with their prompt"
    assert config(loss="kto").step_words == (16, "answers")
    assert config(loss="ipo").about == "ipo, LoRA r16 all-linear"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pack": True}, "pack: True does not go with recipe=preference: a row is a pair of answers"),
        ({"lora_dropout": 0.1}, "lora_dropout: 0.1 does not go with recipe=preference: an answer is compared"),
        ({"neftune_alpha": 5}, "neftune_alpha: 5.* does not go with recipe=preference: an answer is compared"),
        ({"pipes": "a+b"}, "pipes: a\\+b does not go with recipe=preference: a pair is compared where both of its"),
        ({"backend": "unsloth"}, "backend: unsloth does not go with recipe=preference: the log-probability of a whole"),
        ({"sync": "local"}, "sync: local does not go with recipe=preference: a step's loss is the mean over the pairs"),
        ({"train_on": "all"}, "train_on: all does not go with recipe=preference: what is compared are answers"),
        ({"loss": "ppo"}, "loss: 'ppo' is none of dpo|hinge|ipo|orpo|simpo|kto|reward"),
        ({"beta": -1}, "beta must be above 0"),
        ({"label_smoothing": 0.1, "loss": "kto"}, "loss=kto has none\nleave it out, or use loss=dpo or simpo"),
        ({"simpo_gamma": 0.5}, "simpo_gamma: loss=dpo has none"),
        ({"loss": "reward", "beta": 0.1}, "beta: loss=reward has none"),
        (
            {"loss": "reward", "method": "full"},
            "a reward model is an adapter with a head, and method=full has no adapter",
        ),
        ({"center_rewards_coefficient": 0.01}, "center_rewards_coefficient: loss=dpo has none"),
        ({"method": "full"}, "with method=full the base is what is trained, and dpo has nothing left to compare with"),
    ],
)
def test_what_does_not_fit_is_refused_with_one_sentence(values, said):
    with pytest.raises(BadInput, match=said):
        config(**values)


def test_values_that_mean_something_together_are_checked_together():
    values = {"recipe": "preference", "model": "tiny", "dataset": "stdlib-qa", "loss": "simpo", "simpo_gamma": 0.5}
    assert request.read({**values, "label_smoothing": 0.1, "beta": 1.5}).config.scoped("math")["simpo_gamma"] == 0.5


@pytest.mark.parametrize("name", ["dpo", "KTO", "orpo", "reward"])
def test_a_loss_is_no_recipe_of_its_own(name):
    with pytest.raises(BadInput, match=f"{name} is a loss of recipe=preference\nrecipe=preference loss={name.lower()}"):
        load_config({"recipe": name})


def test_the_head_makes_rows_of_this_kind(tmp_path):
    (tmp_path / "kind.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 3)
    values = {"recipe": "preference", "model": "tiny", "dataset": str(tmp_path / "kind.jsonl"), "loss": "ipo"}
    words = handed_on(decided(values, look(), look()), "kind-1").prepare
    assert "--recipe=preference" in words and "--loss=ipo" in words and "--max-seq-length=512" in words


def test_a_pair_takes_the_memory_of_two_sequences():
    assert setup_for(config(), "auto").lines == 2 and setup_for(config(loss="kto"), "auto").lines == 1
    one = Setup(load_in="16bit", row_length=1024)
    pair, two = (memory(FACTS, replace(one, **more)) for more in ({"lines": 2}, {"micro_batch": 2}))
    assert pair == two and pair.activations > 1.9 * memory(FACTS, one).activations
    small = replace(one, load_in="4bit", lines=2)
    needs = memory(FACTS, replace(small, row_length=512)).total
    assert changes_that_fit(FACTS, small, int(needs / 0.91)) == {"row_length": 512}
