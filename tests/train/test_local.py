"""`sync: local`: the steps of an independent reference, nothing lost, resumed exactly, and a machine that is lost."""

import json
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.train import cluster, reference
from tests.train.agents import Agents
from tests.train.proof_of_run import merge, rows_are_right
from train.engine import checkpoint, loop
from train.engine.run import train_run
from train.errors import BadInput, CheckFailed
from train.models.model_files import model_folder
from train.models.optimizer_step import Trained
from train.parallel.diloco import DiLoCo
from train.parallel.process_group import World
from train.parallel.strategy import StepTiming
from train.plan.settings.read_settings import SftConfig, load_config
from train.plan.speed.step_time import most_local_steps

ROWS, STEPS = 60, 20
OPTIONS = reference.OPTIONS | {
    **{"max_steps": STEPS, "save_every": 8, "proof_every": 1},
    **{"sync": "local", "local_steps": 3},
}
SYNCS = [3, 6, 9, 12, 15, 18, 20]
SAVED = [9, 18, 20]
TOGETHER = [3, *SAVED]
TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def truth(data) -> list[float]:
    return local_truth(data)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> cluster.Cluster:
    return cluster.train(tmp_path_factory.mktemp("run"), {**OPTIONS, "dataset": data, "shares": "5,2,1"}, 3)


def local_truth(data, **changed) -> list[float]:
    settings = {"steps": STEPS, "counts": lambda step: (5, 2, 1), "round_steps": 3, "together": TOGETHER} | changed
    return reference.local_losses(model_folder("tiny"), data, **settings)


def each_row_once(run: cluster.Cluster) -> bool:
    return rows_are_right({event["step"]: event for event in run.steps()}, ROWS, 8)


def starts(run: cluster.Cluster) -> list[int]:
    return [event["step"] for event in run.events(kind="start")]


def trained(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_file(folder / "adapter_model.safetensors")


# -- against the reference ---------------------------------------------------------------------------------------


def test_losses_are_those_of_the_reference(finished, truth):
    for rank in range(3):
        assert reference.largest_error(finished.losses(rank), truth) < TOLERANCE


def test_the_reference_can_tell(truth, data, monkeypatch):
    """An outer step without momentum, deltas that are waited for in every round, or that travel unrounded would be
    seen."""
    assert reference.largest_error(local_truth(data, momentum=0.0), truth) > 100 * TOLERANCE
    assert reference.largest_error(local_truth(data, together=SYNCS), truth) > 50 * TOLERANCE
    monkeypatch.setattr(reference, "as_sent", lambda delta: delta)
    assert reference.largest_error(local_truth(data), truth) > 10 * TOLERANCE


def test_each_row_is_trained_once(finished):
    assert each_row_once(finished)


def test_nothing_is_exchanged_between_syncs_and_all_agree_before_a_checkpoint(finished):
    steps = finished.steps()
    assert [event["step"] for event in steps if event["sync_s"] > 0] == SYNCS
    assert {event["sync"] for event in steps} == {"local"}
    assert [event["step"] for event in finished.events(kind="proof")] == TOGETHER
    assert [event["step"] for event in finished.events(kind="checkpoint")] == SAVED


def test_all_nodes_save_the_same(finished):
    files = [finished.checkpoints(rank) / "step-9/manifest.json" for rank in range(3)]
    manifests = [json.loads(file.read_text()) for file in files]
    moments = {manifest.pop("optimizer.safetensors") for manifest in manifests}
    assert "outer.safetensors" in manifests[0]
    assert manifests[0] == manifests[1] == manifests[2] and len(moments) == 3, "only the moments are each one's own"


def test_a_process_without_rows_takes_part_in_syncs(data, tmp_path):
    """One node has no rows in every second round: its delta is zero, and its optimizer has counted fewer steps."""
    options = {**OPTIONS, "dataset": data, "balance": "even", "max_steps": 14, "save_every": 5}
    run = cluster.train(tmp_path, options, 3, changed="idle_rounds=3")
    rows = [tuple(node["rows"] for node in event["nodes"].values()) for event in run.steps()]
    assert rows[0][2] == 0 and rows[3][2] > 0
    truth = local_truth(data, steps=14, counts=lambda step: rows[step], together=[3, 6, 12, 14])
    assert reference.largest_error(run.losses(), truth) < TOLERANCE
    assert each_row_once(run)


@pytest.mark.parametrize(("size", "local_steps"), [(1, 5), (2, 1)])
def test_plain_averaging_is_the_special_case(size, local_steps, data, tmp_path):
    """Outer rate 1 without momentum: alone that is training as always, with rounds of one step the mean of all."""
    plain = {"outer_learning_rate": 1.0, "outer_momentum": 0.0, "local_steps": local_steps, "max_steps": 10}
    run = cluster.train(tmp_path, {**OPTIONS, **plain, "dataset": data, "shares": ",".join("31"[:size])}, size)
    if size == 1:
        truth = reference.losses(model_folder("tiny"), data, steps=10, rows_per_step=8)
    else:
        rounds = {"round_steps": 1, "outer_rate": 1.0, "momentum": 0.0, "together": [1, 8, 10]}
        truth = local_truth(data, steps=10, counts=lambda step: (6, 2), **rounds)
    assert reference.largest_error(run.losses(), truth) < TOLERANCE


# -- stopping, resuming, losing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_stopped_run_resumes_from_its_last_sync(how, finished, data, tmp_path):
    """Killed, it resumes from the last checkpoint and is exactly the run that was never stopped. So it is after a
    SIGTERM in the round behind that checkpoint."""
    options = {**OPTIONS, "dataset": data, "shares": "5,2,1"}
    run = cluster.Cluster(tmp_path, options, 3, changed="rests=11")
    run.reaches(11)
    run.stop(how)
    steps = [checkpoint.steps(run.checkpoints(rank)) for rank in range(3)]
    assert steps == [[9]] * 3, "only what all shared is saved"
    run = cluster.train(tmp_path, options, 3)
    assert starts(run) == [0, 9]
    assert run.losses() == finished.losses()
    ours, never = (trained(r.result(1)) for r in (run, finished))
    assert all(torch.equal(ours[name], never[name]) for name in never)


def test_what_a_leaving_process_still_does_is_neither_reported_nor_saved(data, tmp_path):
    """It has rolled back to step 6 when its main thread comes to report step 11: that would be reported as step 7."""
    options = {**OPTIONS, "dataset": data, "save_every": 1000}
    run = cluster.Cluster(tmp_path, options, changed="lingers=11")
    assert run.wait() == [143]
    assert [event["event"] for event in run.events()][-2:] == ["checkpoint", "stopped"]
    assert run.events()[-1]["step"] == 6
    assert [event["step"] for event in run.steps()] == list(range(1, 11))


def test_what_is_saved_in_the_middle_of_a_round_is_what_all_share(data, tmp_path):
    """The deltas up to step 6 have arrived, those up to 9 travel: each rank saves the common weights with the former,
    and the run continues from there."""
    options = {**OPTIONS, "dataset": data, "save_every": 1000, "shares": "5,3"}
    run = cluster.Cluster(tmp_path, options, 2, changed="rests=11")
    run.reaches(11)
    run.stop(signal.SIGTERM)
    folders = [run.checkpoints(rank) for rank in range(2)]
    assert [checkpoint.steps(folder) for folder in folders] == [[6], [6]]
    ours, theirs = (trained(folder / "step-6") for folder in folders)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    run = cluster.train(tmp_path, options, 2)
    assert starts(run) == [0, 6]
    assert each_row_once(run)


def test_a_lost_node_costs_two_rounds_at_most(data, tmp_path):
    """Agents; one is killed, the others continue from the last sync, it comes back, the run ends: every row once."""
    endless = OPTIONS | {"dataset": data, "max_steps": 100000, "save_every": 1000, "local_steps": 7, "proof_every": 100}
    agents = Agents(tmp_path, endless, size=3)
    agents.start()
    agents.together(*agents.names, step=8, within_s=90)
    agents.kill("node-1")
    agents.together("node-0", "node-2", within_s=60)
    agents.start("node-1")
    agents.together(*agents.names, within_s=60)
    agents.stop()
    began = [event["step"] for event in agents.events("node-0", "start")]
    assert len(began) >= 3 and all(step % 7 == 0 for step in began)
    before = [event["step"] for event in agents.events("node-0") if event["event"] in ("step", "start")]
    repeated = [a - b for a, b in pairwise(before) if b < a]
    assert max(repeated) < 14
    steps = merge([agents.events(name) for name in agents.names])
    assert sorted(steps) == list(range(1, len(steps) + 1))
    assert rows_are_right(steps, ROWS, 8)


def test_a_run_may_change_to_local_steps_and_back(data, tmp_path):
    """In one run: exact until it is stopped, then in rounds, then exact again; no row is lost or comes twice."""
    for step, sync in ((4, "flat"), (9, "local"), (0, "flat")):
        options = {**OPTIONS, "dataset": data, "max_steps": 14, "save_every": 1, "sync": sync}
        run = cluster.Cluster(tmp_path, options, changed=f"rests={step}")
        if step:
            run.reaches(step)
            run.stop()
        run.wait()
    first, second, third = starts(run)
    assert first == 0 and second in (3, 4) and third in (second + 3, second + 6)
    assert {event["sync"] for event in run.steps()} == {"flat", "local"} and len(run.steps()) == 14
    assert each_row_once(run)


# -- how many steps ----------------------------------------------------------------------------------------------------


def rounds(total_steps: int = 1000, steps: int | None = None) -> DiLoCo:
    weight = torch.nn.Parameter(torch.ones(3))
    trained = Trained({"w": weight}, torch.optim.AdamW([weight]))
    config = SftConfig(local_steps=str(steps or "auto"), outer_learning_rate=1.0, outer_momentum=0.0)
    return DiLoCo(trained, None, World(), "cpu", config, total_steps=total_steps)


def seen(found: DiLoCo, step_s: float, exchange_s: float) -> str:
    found.seconds, found.exchange_s = [step_s] * found.steps, exchange_s
    choice = found.decide()
    return choice.message if choice else ""


def test_a_round_computes_for_as_long_as_deltas_travel():
    found = rounds()
    assert "deltas travel for 16.00 s, a step takes 0.50 s" in seen(found, 0.5, 16.0)
    assert found.steps == 40
    assert seen(found, 0.5, 17.6) == "", "a little more or less is no reason"
    assert seen(found, 0.5, 4.0) and found.steps == 10
    assert seen(found, 0.5, 1e-9) and found.steps == 1
    took = (0.35, 0.42, 0.35, 0.5)
    assert [seen(found, 0.5, exchange_s) for exchange_s in took] == [""] * 4, "about one step: not by turns one and two"


def test_the_second_round_is_as_long_as_the_first_asks_for():
    found = rounds()
    assert found.steps == 4 and seen(found, 0.5, 1.0) and found.steps == 3


def test_inner_steps_are_bounded():
    assert [most_local_steps(n) for n in (1, 8, 40, 400, 4000)] == [1, 1, 5, 50, 64]
    found = rounds(total_steps=80)
    seen(found, 0.1, 100.0)
    assert found.steps == 10
    assert seen(rounds(steps=7), 0.1, 100.0) == ""


def test_a_run_that_resumes_keeps_the_number_that_was_measured():
    found = rounds(total_steps=80)
    found.resume(8, {"local_steps": 7})
    assert (found.steps, found.shared_step) == (7, 8)
    assert seen(found, 0.5, 0.0) == "" and found.steps == 7, "none have travelled since"
    found.resume(8, {"local_steps": 64})
    assert found.steps == 10, "as many as leave the run its rounds"
    requested = rounds(steps=5)
    requested.resume(8, {"local_steps": 7})
    assert requested.steps == 5


def test_where_a_run_goes_on_the_number_follows_what_is_measured_there(data, tmp_path, monkeypatch):
    """Alone one step is enough; who comes back over a slow link would else wait after each of them, to the end."""
    begun, take, settings = [], loop.take, {**OPTIONS, "dataset": data, "local_steps": "auto", "home": tmp_path}

    def until(run, mine):
        begun.append((run.strategy.steps, run.strategy.measured))
        assert len(begun) not in (7, 9), "it is stopped here"
        return take(run, mine)

    monkeypatch.setattr(loop, "take", until)
    for _ in range(2):
        with pytest.raises(CheckFailed, match="it is stopped here"):
            train_run(load_config({name: str(value) for name, value in settings.items()}), None)
    assert begun[0] == (2, True) and begun[6:] == [(1, True)] * 3


def test_an_inner_step_that_was_not_counted_yet_is_rolled_back_too():
    """A peer was lost in the first step of a round: the run's step is still the one that all shared."""
    found = rounds(steps=5)
    before = {name: weight.detach().clone() for name, weight in found.trained.named.items()}
    found.trained.named["w"].grad = torch.ones(3)
    found.exchange(1, StepTiming(0.0, 0.0, 0.0), 1.0, [4], saving=False)
    assert not torch.equal(found.trained.named["w"], before["w"])
    assert found.rollback() == 0 and torch.equal(found.trained.named["w"], before["w"])


def test_the_measured_number_is_followed_and_reported(data, tmp_path):
    options = {**OPTIONS, "dataset": data, "local_steps": "auto", "max_steps": 56}
    run = cluster.train(tmp_path, options, 2, changed="slow_syncs=30")
    proofs = [event["step"] for event in run.events(kind="proof")]
    chosen = run.events(kind="local")[0]
    assert (chosen["step"], chosen["steps"]) == (4, 7)
    assert proofs[:3] == [4, 11, 18]
    assert np.isfinite(run.losses()).all()


def test_wrong_settings_are_named():
    with pytest.raises(BadInput, match="neither auto nor a number above 0"):
        SftConfig(local_steps="0")
    with pytest.raises(BadInput, match="use optimizer: adamw"):
        SftConfig(sync="local", optimizer="adamw8bit")
