"""patience: the run ends where its held-out loss no longer falls, at the same step on any cluster and after any
interruption, and what it leaves behind is its best."""

import json
import shutil
import signal
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from tests.support import pace
from tests.train import cluster
from train.engine import between_steps
from train.engine.early_stop import Gains
from train.engine.run import train_run
from train.plan.settings.read_settings import load_config
from train.runlog.state import replay
from train.runlog.tail import read

OPTIONS = {
    **{"model": "tiny", "max_steps": 80, "rows_per_step": 8, "lora_r": 8, "lora_alpha": 16, "wire": "fp32"},
    **{"learning_rate": 3e-3, "warmup_steps": 2, "schedule": "constant"},
    **{"save_every": 7, "eval_every": 2, "patience": 3},
}
"""So high a rate learns the few rows by heart, and the held-out ones get worse."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return cluster.make_rows(tmp_path_factory.mktemp("data"), 24)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory) -> cluster.Cluster:
    return cluster.train(tmp_path_factory.mktemp("alone"), {**OPTIONS, "dataset": data})


def evaluations(run: cluster.Cluster, rank: int = 0) -> list[tuple[int, float]]:
    """Those that count: what was trained again after a resume is evaluated again."""
    return sorted({event["step"]: event["loss"] for event in run.events(rank, "eval")}.items())


def only(run: cluster.Cluster, kind: str, rank: int = 0) -> dict:
    (found,) = run.events(rank, kind)
    return found


def adapter(folder: Path) -> dict:
    return load_file(folder / "adapter_model.safetensors")


def are_equal(ours: Path, theirs: Path) -> bool:
    first, second = adapter(ours), adapter(theirs)
    return all(torch.equal(first[name], second[name]) for name in second)


def assert_same_end(run: cluster.Cluster, truth: cluster.Cluster, ranks: Iterable[int], *, signals: int = 0) -> None:
    """The step of the end, each evaluation, the best: as of one process that nothing interrupted. A signal between a
    step's figures and its report leaves the report to the others."""
    by_step, reported = dict(enumerate(truth.losses(), 1)), set()
    for rank in ranks:
        found, expected = only(run, "early_stop", rank), only(truth, "early_stop")
        assert {**found, "time": 0, "loss": 0} == {**expected, "time": 0, "loss": 0}
        assert len(run.steps(rank)) >= len(by_step) - signals
        for event in run.steps(rank):
            assert event["loss"] == pytest.approx(by_step[event["step"]], rel=1e-4)
            reported.add(event["step"])
        mine = evaluations(run, rank)
        assert mine == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in evaluations(truth)]
        ours, theirs = adapter(run.result(rank)), adapter(truth.result())
        assert all((ours[name] - theirs[name]).abs().max() < 1e-3 for name in theirs)
        assert are_equal(run.result(rank), run.result(rank, "best"))
    assert reported == set(by_step)


def test_gains_below_a_thousandth_count_only_together():
    gains, without = Gains(), []
    for loss in (2.0, 1.9985, 1.9970, 1.9990, 1.9979):
        gains.learn(loss)
        without.append(gains.without)
    assert without == [0, 1, 0, 1, 2], "2.0 to 1.9970 is more than 0.1 %, and 1.9970 to 1.9979 a loss"
    assert gains.mark == 1.9970


def test_a_loss_that_is_no_number_is_neither_the_best_nor_a_gain(monkeypatch):
    """An overflow of fp16 in one evaluation, the first."""
    losses = [float("nan"), 2.0, 2.5]
    monkeypatch.setattr(between_steps, "held_out_loss", lambda _: (losses.pop(0), 10, {}))
    for act in ("show_samples", "save"):
        monkeypatch.setattr(between_steps, act, lambda _: None)
    milestones, reporter = between_steps.Milestones(), SimpleNamespace(held_out=lambda *_, **__: None)
    run = SimpleNamespace(milestones=milestones, trained=SimpleNamespace(lock=nullcontext()), reporter=reporter)
    for run.step in (1, 2, 3):
        between_steps.evaluate(run)
    assert (milestones.best["step"], milestones.gains.mark, milestones.gains.without) == (2, 2.0, 1)


def test_where_no_evaluation_is_a_number_it_ends_all_the_same_and_says_so(data, tmp_path, monkeypatch):
    monkeypatch.setattr(between_steps, "held_out_loss", lambda _: (float("nan"), 10, {}))
    settings = {**OPTIONS, "dataset": data, "home": tmp_path}
    (tmp_path / "results/run/best").mkdir(parents=True)  # of a run of that name before
    train_run(load_config({name: str(value) for name, value in settings.items()}), None)
    events = read(tmp_path / "logs/runs/run/events.jsonl")
    (end,) = [event for event in events if event["event"] == "early_stop"]
    assert (end["step"], end["best"], end["loss"]) == (6, 6, None)
    assert end["reason"] == "no finite loss on held-out rows in the last 3 evaluations"
    assert (tmp_path / "results/run/adapter").is_dir() and not (tmp_path / "results/run/best").exists()


def test_it_ends_three_evaluations_after_the_last_gain(alone):
    """Worked out here again from the evaluations that the event log has."""
    found, mark, without, end = evaluations(alone), float("inf"), 0, 0
    for step, loss in found:
        mark, without = (loss, 0) if loss <= mark * 0.999 else (mark, without + 1)
        if without == 3:
            end = step
            break
    event = only(alone, "early_stop")
    assert event["step"] == end == alone.steps()[-1]["step"] == found[-1][0] < OPTIONS["max_steps"]
    assert event["best"] == min(found, key=lambda one: one[1])[0] < end
    state, changes = replay(alone.events())
    assert state.total == state.step == end and "early_stop" in {change.kind for change in changes}


def test_the_result_is_the_best_and_not_the_last(alone):
    end = only(alone, "early_stop")
    assert are_equal(alone.result(), alone.checkpoints() / f"step-{end['best']}")
    assert not are_equal(alone.result(), alone.checkpoints() / f"step-{alone.steps()[-1]['step']}")
    assert f"{end['loss']:.3f}" in (alone.result() / "README.md").read_text()


def test_three_processes_end_where_one_does_also_one_that_was_away_at_the_best(alone, data, tmp_path):
    """It gets the best from another."""
    options, best = {**OPTIONS, "dataset": data, "shares": "5,2,1"}, only(alone, "early_stop")["best"]
    run = cluster.train(tmp_path, options, 3, changed=f"forgets_checkpoint={best}")
    assert [(run.checkpoints(rank) / f"step-{best}").exists() for rank in range(3)] == [True, False, True]
    assert_same_end(run, alone, [0, 2])
    assert are_equal(run.result(1), run.result(0))


@pytest.mark.parametrize(
    ("number", "at"), [(signal.SIGKILL, 9), pytest.param(signal.SIGTERM, 12, marks=pytest.mark.long)]
)
def test_an_interrupted_run_ends_where_it_would_have(number, at, alone, data, tmp_path):
    """Also where the second cluster's third process has no checkpoint, so gets the best weights from another."""
    options = {**OPTIONS, "dataset": data}
    run = cluster.Cluster(tmp_path, options, 2)
    run.reaches(at)
    run.stop(number)
    again = cluster.train(tmp_path, options, 3)
    assert_same_end(again, alone, range(2), signals=1)
    assert are_equal(again.result(2), again.result())


def test_an_evaluation_that_a_signal_broke_off_is_made_again(alone, data, tmp_path):
    options = {**OPTIONS, "dataset": data}
    run = cluster.Cluster(tmp_path, options, changed="rests_in_evaluation=8")
    pace.until(lambda: len(run.steps()) == 8 and "resting" in run.said(), pace.HANG_S, run.said)
    run.stop(signal.SIGTERM)
    assert [step for step, _ in evaluations(run)] == [2, 4, 6]
    assert_same_end(cluster.train(tmp_path, options), alone, [0])


def test_more_patience_continues_a_run_that_ended(alone, data, tmp_path):
    end = len(alone.steps())
    shutil.copytree(alone.node_home(0), tmp_path / "node-0")
    longer = cluster.train(tmp_path, {**OPTIONS, "dataset": data, "patience": 5})
    assert len(longer.steps()) > end
    assert longer.losses()[:end] == pytest.approx(alone.losses(), rel=1e-4)
    last = [event for event in longer.events() if event["event"] in ("early_stop", "done")][-1]
    assert last["event"] == "done" and last["step"] == len(longer.steps())


def test_the_best_of_a_run_that_began_where_another_was_may_be_that_ones(data, tmp_path, monkeypatch):
    """With more patience, under another name, and nothing better comes."""
    monkeypatch.setattr(between_steps, "held_out_loss", lambda run: (1.0 if run.step == 2 else 2.0, 10, {}))
    settings = {**OPTIONS, "dataset": data, "home": tmp_path, "max_steps": 8}
    for more in ({"patience": 1}, {"patience": 5, "run": "second", "resume": "run"}):
        train_run(load_config({name: str(value) for name, value in (settings | more).items()}), None)
    best = tmp_path / "models/checkpoints/run/step-2"
    events = read(tmp_path / "logs/runs/second/events.jsonl")
    assert [event["step"] for event in events if event["event"] == "eval"] == [6, 8]
    assert are_equal(tmp_path / "results/second/adapter", best)
    assert are_equal(tmp_path / "results/second/best", best)


def test_patience_alone_evaluates_often_enough(data, tmp_path):
    options = {**OPTIONS, "dataset": data, "max_steps": 40, "patience": 40, "learning_rate": 1e-2}
    del options["eval_every"]
    run = cluster.train(tmp_path, options)
    assert [step for step, _ in evaluations(run)] == list(range(2, 41, 2))
    assert "patience 40: evaluated every 2 steps" in run.said()
    assert not run.events(kind="early_stop")
    best = min(evaluations(run), key=lambda one: one[1])[0]
    kept = run.checkpoints() / f"step-{best}"
    assert json.loads((kept / "state.json").read_text())["best"]["step"] == best < 40
    assert are_equal(run.result(), kept), "all steps were trained; the best is kept"


def test_without_held_out_rows_it_is_refused(tmp_path):
    data = cluster.make_rows(tmp_path / "data", 20, 0)
    run = cluster.Cluster(tmp_path, {**OPTIONS, "dataset": data})
    assert run.wait() == [2]
    assert "patience: 3, but no rows are held out" in run.said()
