"""Training by preferences: whoever compares the answers, what is learned is that of preferred.py, one process that
reads one answer at a time, with the base as a model of its own."""

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train import cluster, preferred
from tests.train import reference as plain
from tests.train.agents import Agents
from train.engine.run import train_run
from train.models.model_files import model_folder
from train.plan.settings.read_settings import load_config
from train.recipes.preference import reference
from train.runlog.event_types import PAIRS

STEPS, ROWS = 6, plain.OPTIONS["rows_per_step"]
TOLERANCE = 1e-5
MOST_COMPARED = 40
"""Steps of a run that lasts as long as its machines take: the truth takes its time as well."""
SLOW = "tests/train/broken.py pretended_speed=1"
"""So few steps pass while a machine is away."""
OPTIONS = plain.OPTIONS | {"recipe": "preference", "max_steps": STEPS, "max_seq_length": 96}
OPTIONS |= {"save_every": 2, "proof_every": 2}


@pytest.fixture(scope="module")
def data_of(tmp_path_factory):
    return functools.cache(lambda paired: preferred.make_data(tmp_path_factory.mktemp("data"), paired=paired))


@pytest.fixture(scope="module")
def truth_of(data_of):
    return functools.cache(lambda loss, **how: preferred.train(data_of(loss != "kto"), steps=STEPS, loss=loss, **how))


@pytest.fixture
def settings_of(data_of):
    def settings(loss="dpo", **more):
        rate = preferred.SCORING_RATE if loss == "reward" else preferred.RATE
        return {**OPTIONS, "loss": loss, "learning_rate": rate, "dataset": data_of(loss != "kto"), **more}

    return settings


def alone(settings, home: Path):
    """A run in this process: its steps, its weights and the rest of its events."""
    values = {name: str(value) for name, value in {**settings, "home": home}.items()}
    run, _ = train_run(load_config(values), None)
    events = cluster.read(run.config.log_folder / "events.jsonl")
    return cluster.history(events), run.trained.parameters, events


def assert_is_truth(steps, truth, events=(), weights=None, within=1):
    found, held_out, last = truth
    assert [step["step"] for step in steps] == list(range(1, len(found) + 1))
    for step, one in zip(steps, found, strict=True):
        assert step["loss"] == pytest.approx(one["loss"], rel=within * TOLERANCE, abs=within * TOLERANCE)
        assert step["grad_norm"] == pytest.approx(one["norm"], rel=2 * within * TOLERANCE)
        assert_figures(step["pairs"], one, within)
    for event in [event for event in events if event["event"] == "eval"][-1:]:
        assert event["loss"] == pytest.approx(held_out["loss"], rel=within * TOLERANCE)
        assert_figures(event["metrics"], held_out, within)
    if weights is not None:
        away = sum(float((a - b).detach().square().sum()) for a, b in zip(weights, last, strict=True))
        assert away < 1e-8 * sum(float(b.detach().square().sum()) for b in last)


def assert_figures(found, truth, within=1):
    assert set(found) <= set(PAIRS) and set(found) == truth.keys() & set(PAIRS)
    for name, value in found.items():
        assert value == pytest.approx(truth[name], rel=2 * within * TOLERANCE, abs=2 * within * TOLERANCE), name


@pytest.mark.parametrize("loss", ["dpo", "hinge", "ipo", "orpo", "simpo", "kto", "reward"])
def test_each_loss_is_that_of_plain_pytorch(loss, settings_of, truth_of, tmp_path):
    steps, weights, events = alone(settings_of(loss), tmp_path)
    assert_is_truth(steps, truth_of(loss), events, weights)


def test_smoothed_labels_are_those_of_plain_pytorch(settings_of, truth_of, tmp_path):
    steps, weights, _ = alone(settings_of(label_smoothing=0.2), tmp_path)
    assert_is_truth(steps, truth_of("dpo", smoothed=0.2), (), weights)


def test_scores_that_are_held_around_zero_are_those_of_plain_pytorch(settings_of, truth_of, tmp_path):
    steps, weights, _ = alone(settings_of("reward", center_rewards_coefficient=0.5), tmp_path)
    assert_is_truth(steps, truth_of("reward", centre=0.5), (), weights)
    free = truth_of("reward")[0][-1]["loss"]
    assert abs(steps[-1]["loss"] - free) > 100 * TOLERANCE, "it holds nothing"


def test_the_losses_differ(truth_of):
    """Else the comparisons with them could not tell them apart."""
    several = (truth_of("dpo"), truth_of("dpo", smoothed=0.2), truth_of("hinge"), truth_of("ipo"))
    norms = [truth[0][-1]["norm"] for truth in several]
    assert all(abs(a - b) > 20 * TOLERANCE * a for a, b in itertools.combinations(norms, 2))


CLUSTERS = {
    "5:2:1": (3, "dpo", {"shares": "5,2,1"}),
    "ddp": (2, "dpo", {"shares": "5,3", "sync": "ddp"}),
    "the step's estimate, not the rank's": (3, "kto", {"shares": "5,2,1"}),
    "a share of zero, one row at a time": (3, "kto", {"shares": "3,0,1", "micro_batch": 1}),
    "learned tokens of the whole step": (3, "orpo", {"shares": "5,2,1"}),
    "a head": (3, "reward", {"shares": "5,2,1"}),
    "a head, a share of zero, ddp": (3, "reward", {"shares": "3,0,1", "micro_batch": 1, "sync": "ddp"}),
}


SELDOM = ("ddp", "a head")
"""tests/train/test_exactness.py has ddp, and the last of these the head."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SELDOM else name for name in CLUSTERS]
)
def test_a_cluster_does_what_one_process_does(name, settings_of, truth_of, tmp_path):
    size, loss, options = CLUSTERS[name]
    run = cluster.train(tmp_path, settings_of(loss, **options), size)
    for rank in range(size):
        assert_is_truth(run.steps(rank), truth_of(loss), run.events(rank))
    adapters = [{e["step"]: e["adapter"] for e in run.events(rank, "proof")} for rank in range(size)]
    assert adapters[0] and adapters[1:] == adapters[:-1]


@pytest.mark.parametrize("loss", ["kto", pytest.param("reward", marks=pytest.mark.long)])
def test_a_killed_run_goes_on_exactly_with_other_machines(loss, settings_of, truth_of, tmp_path):
    settings = settings_of(loss)
    cluster.killed(tmp_path, settings, 3)
    run = cluster.train(tmp_path, settings, 2)
    assert run.events(kind="start")[-1]["step"] >= 2
    assert_is_truth(run.steps(), truth_of(loss), run.events())


def test_the_base_is_asked_once_for_each_row(settings_of, tmp_path, monkeypatch):
    """By another run on the same rows not at all."""
    asked = []
    lacking = reference.References.lacking

    def counted(self, rows):
        found = lacking(self, rows)
        asked.extend(found)
        return found

    monkeypatch.setattr(reference.References, "lacking", counted)
    first = alone(settings_of(), tmp_path)
    rows = first[2][0]["rows"]
    held_out = next(event["targets"] for event in first[2] if event["event"] == "eval")
    assert 2 * rows < STEPS * ROWS, "each row comes more than twice"
    assert len(asked) == rows + held_out
    asked.clear()
    again = alone(settings_of(run="again"), tmp_path)
    assert asked == []
    assert [step["loss"] for step in again[0]] == [step["loss"] for step in first[0]]


def test_what_a_file_does_not_have_whole_is_asked_again(tmp_path):
    file = tmp_path / "values.f8"
    known = reference.References(file, 3)
    known.learn([2], np.array([[-1.5, -2.5]]))
    known.keep()
    again = reference.References(file, 3)
    assert again.lacking([0, 1, 2]) == [0, 1] and again.values[2].tolist() == [-1.5, -2.5]
    assert reference.References(file, 4).lacking([2]) == [2], "it is of other rows"
    file.write_bytes(np.array([[np.nan, -1], [-1, np.inf], [-1, -2]]).tobytes())
    assert reference.References(file, 3).lacking([0, 1, 2]) == [0, 1]


@pytest.mark.parametrize("loss", ["dpo", pytest.param("kto", marks=pytest.mark.long), "reward"])
def test_a_streamed_base_gives_the_same_numbers(loss, settings_of, truth_of, tmp_path):
    steps, weights, events = alone(settings_of(loss, weights="stream"), tmp_path)
    assert_is_truth(steps, truth_of(loss), events, weights)


@pytest.mark.parametrize(
    ("loss", "weights"), [("dpo", "gpu"), pytest.param("dpo", "stream", marks=pytest.mark.long), ("reward", "gpu")]
)
def test_a_base_in_4_bit_is_its_own_reference(loss, weights, settings_of, truth_of, tmp_path):
    steps, _, events = alone(settings_of(loss, load_in="4bit", weights=weights), tmp_path)
    assert_is_truth(steps, truth_of(loss, nf4=True), events, within=10)
    assert abs(truth_of(loss, nf4=True)[0][-1]["loss"] - truth_of(loss)[0][-1]["loss"]) > 100 * TOLERANCE


def said_by_base(questions):
    """Each by itself, by transformers' own generate."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny"))
    model, found = AutoModelForCausalLM.from_pretrained(model_folder("tiny")).eval(), []
    for question in questions:
        turns = [{"role": "user", "content": question}]
        given = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        made = model.generate(**given, max_new_tokens=32, do_sample=False, pad_token_id=0)
        found.append(tokenizer.decode(made[0, given["input_ids"].shape[1] :], skip_special_tokens=True))
    return found


def test_an_evaluation_shows_what_the_model_answers(settings_of, tmp_path):
    *_, events = alone(settings_of(max_steps=1), tmp_path)
    before, lines = [event["lines"] for event in events if event["event"] == "samples"]
    assert len(lines) == 4 and "What is" in lines[0]["given"] and lines[0]["wrote"]
    assert [line["given"] for line in before] == [line["given"] for line in lines], "also before the first step"
    assert [line["wrote"] for line in before] == said_by_base([line["given"] for line in lines])
    assert [line["wrote"] for line in lines] != [line["wrote"] for line in before], "one step at this rate changes some"
    card = (tmp_path / "results/run/adapter/README.md").read_text()
    assert "held-out loss (dpo, beta 0.1)" in card and "0.693 →" in card and "pairs the right way round" in card


def test_a_machine_that_is_lost_and_comes_back_changes_nothing(data_of, tmp_path):
    """Those that stay keep what the base said; who comes back has not heard all of it, and asks again."""
    options = {**OPTIONS, "loss": "kto", "dataset": data_of(False), "max_steps": 100000, "save_every": 100000}
    agents = Agents(tmp_path, options)
    agents.start(program=SLOW)
    agents.together(*agents.names, within_s=60, step=2)
    stay, lost = agents.names[:2], agents.names[2]
    agents.kill(lost)
    agents.together(*stay, within_s=60, step=agents.last_step(stay[0])["step"] + 1)
    agents.start(lost, program=SLOW)
    agents.together(*agents.names, within_s=60)
    agents.stop(within_s=20)
    steps = agents.steps(stay[0])[:MOST_COMPARED]
    assert {tuple(step["nodes"]) for step in steps} >= {tuple(stay), tuple(agents.names)}, "nobody was lost in these"
    how = {"loss": "kto", "of_steps": options["max_steps"]}
    truth = preferred.train(data_of(False), steps=len(steps), **how)[0]
    for step, one in zip(steps, truth, strict=True):
        assert step["loss"] == pytest.approx(one["loss"], rel=TOLERANCE)
        assert_figures(step["pairs"], one)
