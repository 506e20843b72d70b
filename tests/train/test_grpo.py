"""Training by rewards: whoever makes the answers and trains on them, they and what is learned are those of rewarded.py,
one process that makes one answer at a time."""

import functools
import itertools
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support import pace
from tests.train import cluster, reference, rewarded
from train.engine import loop
from train.engine.run import train_run
from train.errors import CheckFailed
from train.models import backends
from train.models.backends import to_tensors
from train.models.model_files import model_folder
from train.models.sample_tokens import Draw, answers, gumbel, key
from train.models.weights import trained_weights
from train.plan.settings.read_settings import load_config
from train.recipes.grpo.recipe import GrpoRecipe
from train.runlog.event_types import Rollout

STEPS, ROWS, GROUP = 6, 8, 4
TOLERANCE = 2e-5
AGAIN = {"steps_per_rollout": 4, "epsilon": 0.1, "epsilon_high": 0.2}
"""Of the six steps four are on the first answers, two on the second; no checkpoint falls between them."""
IN_TRUTH = {
    **{"scale_rewards": "scale", "steps_per_rollout": "reuse", "max_steps": "steps"},
    **{"epsilon": "low", "epsilon_high": "high"},
}
OPTIONS = reference.OPTIONS | {
    **{"recipe": "grpo", "max_steps": STEPS, "rows_per_step": ROWS, "group": GROUP},
    **{"max_new_tokens": 10, "max_seq_length": 96, "save_every": 2, "proof_every": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return rewarded.make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def truth_of(data):
    def train(**how):
        return rewarded.train(data, **{"steps": STEPS} | {IN_TRUTH.get(name, name): how[name] for name in how})

    return functools.cache(train)


@pytest.fixture(scope="module")
def settings(data) -> dict:
    return {**OPTIONS, "dataset": data, "rewards": data.parent / "rewards.py"}


@pytest.fixture(scope="module")
def variant(settings, tmp_path_factory):
    """The run of one process, of each of VARIANTS."""
    return functools.cache(lambda name: alone(settings, tmp_path_factory.mktemp("alone"), **VARIANTS[name]))


def alone(settings, home, **more):
    """A run in this process: its steps, its weights and the rest of its events."""
    values = {name: str(value) for name, value in {**settings, **more, "home": home}.items()}
    run, _ = train_run(load_config(values), None)
    events = cluster.read(run.config.log_folder / "events.jsonl")
    return cluster.history(events), run.trained.parameters, events


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def assert_is_truth(steps, truth, weights=None):
    found, last = truth
    assert [step["rollout"]["answers_crc"] for step in steps] == [one["answers"] for one in found]
    for step, one in zip(steps, found, strict=True):
        assert step["rollout"]["reward"] == pytest.approx(one["reward"], abs=1e-12)
        assert step["grad_norm"] == pytest.approx(one["norm"], rel=TOLERANCE)
        assert step["loss"] == pytest.approx(one["loss"], abs=1e-6)
        assert step["rollout"].get("clipped", 0.0) == pytest.approx(one["clipped"], abs=1e-12)
    if weights is not None:
        away = sum(float((a - b).square().sum()) for a, b in zip(weights, last, strict=True))
        assert away < 1e-8 * sum(float(b.square().sum()) for b in last)


CLUSTERS = {
    "5:2:1": (3, {"shares": "5,2,1"}),
    "a share of zero, micro-batch 1": (3, {"shares": "3,0,1", "micro_batch": 1}),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_does_what_one_process_does(name, settings, truth_of, variant, tmp_path):
    size, options = CLUSTERS[name]
    run = cluster.train(tmp_path, {**settings, **options}, size)
    for rank in range(size):
        assert_is_truth(run.steps(rank), truth_of())
    adapters = [{event["step"]: event["adapter"] for event in run.events(rank, "proof")} for rank in range(size)]
    assert adapters[0] and adapters[1:] == adapters[:-1]
    last = run.steps()[-1]
    assert {*last["rollout"], "kl", "clipped"} == Rollout.__optional_keys__
    assert list(last["rollout"]["generate_s"]) == list(last["nodes"])
    first, wanted = (of_kind(events, "eval")[0] for events in (run.events(), variant("dapo")[2]))
    assert first | {"time": 0} == wanted | {"time": 0}, "held-out answers are scored alike"


def test_shares_may_change_at_every_step(settings, truth_of, tmp_path):
    run = cluster.train(tmp_path, {**settings, **AGAIN, "balance": "even"}, 3, changed="moving_shares")
    assert len({tuple(event["shares"]) for event in run.steps()}) > 2
    assert_is_truth(run.steps(), truth_of(**AGAIN))
    made = [step["step"] for step in run.steps() if max(step["rollout"]["generate_s"].values()) > 0]
    assert made == [1, 5]


def test_who_is_free_ends_what_a_slow_machine_has_begun(settings, truth_of, tmp_path):
    run = cluster.train(tmp_path, settings, 3, changed="slow_answers=40")
    assert_is_truth(run.steps(), truth_of())
    found = [step["rollout"] for step in run.steps()]
    assert sum(one["taken_over"] for one in found) > 0
    assert {sum(one["made"].values()) for one in found} == {ROWS}
    assert found[-1]["made"]["node-0"] < ROWS / 3 < found[-1]["made"]["node-1"] + found[-1]["made"]["node-2"]


@pytest.mark.parametrize(
    "again", [pytest.param({}, marks=pytest.mark.long), AGAIN], ids=["one step", "four steps on the same answers"]
)
def test_a_killed_run_goes_on_exactly_with_other_machines(again, settings, truth_of, tmp_path):
    settings = {**settings, **again}
    run = cluster.Cluster(tmp_path, settings, 3)
    run.reaches(3)
    run.stop()
    run = cluster.train(tmp_path, settings, 2)
    assert run.events(kind="start")[-1]["step"] >= 2
    assert_is_truth(run.steps(), truth_of(**again))


def test_who_waits_for_answers_notices_at_once_who_ends(settings, tmp_path):
    """Without an agent; timeout_s is five minutes."""
    run = cluster.Cluster(tmp_path, settings, 3, changed="sleeps_over_answers")
    pace.until(lambda: "sleeping" in run.said(1), pace.HANG_S, run.said)
    run.processes[1].send_signal(signal.SIGKILL)
    for rank in (0, 2):
        assert pace.ended(run.processes[rank], 30, run.said) == 1
    assert "rank 1 has ended" in run.said(0)
    said = run.said(2)  # with rank 0 the store ends, where it was quicker
    assert "rank 1 has ended" in said or "DistNetworkError" in said


VARIANTS = {
    "dapo": {},
    "grpo": {"loss": "grpo", "scale_rewards": "batch", "max_steps": 3},
    "dr_grpo": {"loss": "dr_grpo", "scale_rewards": "none", "max_steps": 3},
    "near the base": {"beta": 0.2, "temperature": 0.7},
    "the likeliest alone, and what ends": {"top_p": 0.6, "mask_overlong": True, "max_steps": 3},
    "several steps on the same answers": {**AGAIN, "beta": 0.2, "temperature": 0.7},
    "gspo": {"loss": "gspo", "steps_per_rollout": 3, "epsilon": 0.15, "epsilon_high": 0.2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_loss_is_that_of_plain_pytorch(name, truth_of, variant):
    options = VARIANTS[name]
    truth = truth_of(**options)
    assert len({length for step in truth[0] for length in step["lengths"]}) > 3, "all answers are of one length"
    steps, weights, _ = variant(name)
    assert_is_truth(steps, truth, weights)
    if "beta" in options:
        kl = [step["rollout"]["kl"] for step in steps]
        assert kl == pytest.approx([one["kl"] for one in truth[0]], abs=1e-6)
        assert kl[-1] > 0.001
    else:
        assert "kl" not in steps[0]["rollout"]
    if "steps_per_rollout" in options:
        clipped = [step["rollout"]["clipped"] for step in steps]
        assert clipped[0] == 0 and 0 < max(clipped) < 1


def test_the_losses_differ(truth_of):
    """Else the comparisons with them could not tell them apart: at the first step answers and weights are the same."""
    norms = [truth_of(**VARIANTS[name])[0][0]["norm"] for name in ("dapo", "grpo", "dr_grpo")]
    assert all(abs(a - b) > 100 * TOLERANCE for a, b in itertools.combinations(norms, 2))


def test_groups_without_a_difference_teach_nothing(settings, tmp_path):
    (tmp_path / "same.py").write_text("def same(completions):\n    return [0.1 for _ in completions]\n")
    steps, weights, events = alone(settings, tmp_path / "home", rewards=tmp_path / "same.py")
    assert [step["grad_norm"] for step in steps] == [0.0] * STEPS
    assert [step["rollout"]["equal_groups"] for step in steps] == [1.0] * STEPS
    spec = backends.ModelSpec(folder=model_folder("tiny"), lora_r=8, lora_alpha=16)
    first = trained_weights(backends.get("hf").build(spec))
    assert all(torch.equal(a, b) for a, b in zip(weights, dict(sorted(first.items())).values(), strict=True))
    (warning,) = of_kind(events, "warning")
    assert "the same reward" in warning["message"]


@pytest.mark.parametrize("mask", [True, False])
def test_answers_that_never_end_are_cut_and_told(mask, settings, data, tmp_path):
    rows = shutil.copytree(data, tmp_path / "rows")
    index = json.loads((rows / "index.json").read_text())
    (rows / "index.json").write_text(json.dumps(index | {"end_ids": []}))
    steps, _, events = alone(settings, tmp_path / "home", dataset=rows, mask_overlong=mask, max_steps=2)
    for step in steps:
        assert (step["rollout"]["cut"], step["rollout"]["answer_tokens"], step["rollout"]["longest"]) == (1, 10, 10)
        assert (step["targets"], step["grad_norm"] == 0) == (0 if mask else 80, mask)
    (warning,) = of_kind(events, "warning")
    assert warning["message"].startswith("no answer of this step came to an end within max_new_tokens=10")


def test_a_reward_that_raises_ends_the_run_with_one_sentence(settings, tmp_path):
    for node in ("good", "bad"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "r.py").write_text(
            "from pathlib import Path\n"
            "def picky(completions):\n"
            "    if Path(__file__).with_name('breaks').exists():\n"
            "        raise ValueError('it is said so')\n"
            "    return [float(len(c)) for c in completions]\n"
        )
    (tmp_path / "bad" / "breaks").touch()
    options = {**settings, "rewards": tmp_path / "good/r.py", "shares": "1,1"}
    run = cluster.Cluster(tmp_path, options, 2, odd_rank_options={1: {"rewards": tmp_path / "bad/r.py"}})
    assert run.wait() == [1, 1]
    for rank in range(2):
        assert "the reward picky raised ValueError: it is said so (line 4)" in run.said(rank)
        assert "Traceback" not in run.said(rank)
    assert re.search(r"node-0, step \d: node-1: the reward picky", run.said(0))
    assert re.search(r"node-1, step \d: the reward picky", run.said(1))


@pytest.fixture
def asked(monkeypatch):
    """The steps at which held-out prompts are asked."""
    found, held_out = [], GrpoRecipe.held_out

    def counted(self, run):
        found.append(run.step)
        return held_out(self, run)

    monkeypatch.setattr(GrpoRecipe, "held_out", counted)
    return found


def test_what_there_was_before_is_asked_once(settings, asked, tmp_path, monkeypatch):
    with monkeypatch.context() as broken, pytest.raises(CheckFailed, match="the power is gone"):
        broken.setattr(loop, "rows_due", no_power)
        alone(settings, tmp_path, eval_every=2)
    assert asked == [0]
    *_, events = alone(settings, tmp_path, eval_every=2)
    assert asked == [0, 2, 4, 6], "neither where it resumes nor at the end"
    found = of_kind(events, "eval")
    assert [event["step"] for event in found] == [0, 2, 4, 6], "also before the first step"
    assert set(found[0]["metrics"]) == {"reward", "vowels", "short"}
    rewards = [event["metrics"]["reward"] for event in found]
    assert [event["loss"] for event in found] == [-reward for reward in rewards]
    best = [event for event in found if event["best"]][-1]
    assert best["metrics"]["reward"] == max(rewards)
    card = (tmp_path / "results/run/adapter/README.md").read_text()
    assert "held-out reward" in card and f"{rewards[0]:.3f} → {rewards[-1]:.3f}" in card and "loss" not in card
    last = of_kind(events, "samples")[-1]["lines"][0]
    assert last["given"].startswith("What is ") and last["wrote"]


def no_power(*_):
    raise RuntimeError("the power is gone")


@pytest.mark.parametrize("reward", [0.0, 0.5])
def test_what_learns_nothing_ends_early_and_leaves_what_there_was(reward, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(GrpoRecipe, "held_out", lambda *_: (-reward, 3, {"reward": reward}))
    _, weights, events = alone(settings, tmp_path, eval_every=1, patience=2)
    (end,) = of_kind(events, "early_stop")
    assert (end["step"], end["best"], end["loss"]) == (2, 0, -reward)
    assert not any(weight.any() for weight in weights[1::2]), "the matrices of an adapter that begin at 0"
    best, last = (
        load_file(tmp_path / "results/run" / name / "adapter_model.safetensors") for name in ("best", "adapter")
    )
    assert best.keys() == last.keys() and all(torch.equal(best[name], last[name]) for name in best)


def test_noise_is_that_of_whole_numbers():
    keys = [key(3407, step, row, place) for step, row, place in ((0, 0, 0), (5, 7, 9))]
    found = gumbel(keys, 100, torch.device("cpu"))
    truth = torch.stack([rewarded.noise(100, 3407, 0, 0, 0), rewarded.noise(100, 3407, 5, 7, 9)])
    assert torch.equal(found, truth)
    many = gumbel([key(1, 2, 3, place) for place in range(200)], 1000, torch.device("cpu"))
    assert float(many.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(many.var()) == pytest.approx(1.6449, abs=0.03)


def test_an_answer_does_not_depend_on_those_beside_it(settings, data):
    config = load_config({name: str(value) for name, value in settings.items()})
    rows, _ = GrpoRecipe(config).rows(config, print)
    spec = backends.ModelSpec(folder=model_folder("tiny"), method="base")
    model = backends.get("hf").build(spec).eval()
    draw = Draw(seed=1, rollout=3)

    def made(numbers):
        batch = to_tensors(rows.batch([number % len(rows) for number in numbers]), "cpu")
        return answers(model, batch, numbers, draw, end_ids=rows.end_ids, most=10)

    together = made(list(range(12)))
    assert len({tuple(one.tokens) for one in together}) == 12
    assert len({len(one.tokens) for one in together}) > 3
    for numbers in ([5], [7, 2], [11, 0, 3]):
        for number, one in zip(numbers, made(numbers), strict=True):
            assert one.tokens == together[number].tokens
            assert one.log_p == pytest.approx(together[number].log_p, abs=1e-4)
