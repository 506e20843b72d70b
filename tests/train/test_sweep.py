"""A sweep: what Optuna proposes and ends follows from the record alone; three processes train its trials for real."""

import json
import math
import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from tests.train.agents import Agents
from tests.train.cluster import Cluster, make_rows, train
from train.errors import BadInput, CheckFailed
from train.plan.machines.nodes import Device
from train.plan.settings.read_settings import load_config
from train.pool.pieces import Done, Known, Piece, Taken
from train.recipes.sft import recipe as sft
from train.recipes.sweep import propose
from train.recipes.sweep.recipe import GIVE_UP_AFTER, SweepRecipe
from train.recipes.sweep.trial import Process, alone
from train.runlog.trials import Trial, best

SEARCH = "learning_rate=1e-5..1e-1:log lora_r=4,8,16"
ALL_FIT = lambda _: True  # noqa: E731


def sweep(search=SEARCH, **more):
    return load_config({"recipe": "sweep", "model": "tiny", "search": search, "trials": 30, **more})


def trial(number, state="done", losses=(), **params):
    params = {"learning_rate": 1e-3, "lora_r": 8} | params
    return Trial(number=number, node="a", params=params, state=state, losses=tuple(losses), total=80)


def curve(end, start=3.0, looks=8):
    """Held-out losses that fall from `start` to `end` over the looks of a trial."""
    return [(10 * look, start + (end - start) * look / 8) for look in range(1, looks + 1)]


def as_known(trials):
    return {one.number: one for one in trials}


def test_the_same_record_leads_to_the_same_proposal():
    config, known = sweep(), as_known(trial(n, losses=curve(n / 10)) for n in range(1, 12))
    first = propose.next_trial(config, known, ALL_FIT)
    assert first == propose.next_trial(config, dict(reversed(known.items())), ALL_FIT)
    number, params = first
    assert number == 12 and set(params) == {"learning_rate", "lora_r"} and params["lora_r"] in (4, 8, 16)
    assert 1e-5 <= params["learning_rate"] <= 1e-1
    assert propose.next_trial(sweep(seed=1), known, ALL_FIT) != first


def test_it_looks_where_trials_were_good():
    """Here the best rate is 1e-3: after twenty trials most proposals are near it, at first they are anywhere."""
    config, known = sweep("learning_rate=1e-5..1e-1:log"), {}
    for _ in range(30):
        number, params = propose.next_trial(config, known, ALL_FIT)
        away = abs(math.log10(params["learning_rate"]) + 3)
        known[number] = Trial(number=number, node="a", params=params, state="done", losses=((80, 1 + away),), total=80)
    near = [abs(math.log10(one.params["learning_rate"]) + 3) < 0.7 for one in known.values()]
    assert sum(near[20:]) >= 6 > sum(near[:10]) and best(known.values()).loss < 1.1


def test_a_number_that_is_free_again_is_proposed_first_and_nothing_beyond_the_last():
    config = sweep(trials=5)
    known = as_known(trial(n, losses=curve(1), learning_rate=n / 100) for n in (1, 2, 4, 5))
    assert propose.next_trial(config, known, ALL_FIT)[0] == 3
    assert propose.next_trial(config, known | {3: trial(3, "running")}, ALL_FIT) is None


def test_what_is_listed_is_tried_once_each_and_what_does_not_fit_is_left_to_others():
    config, known = sweep("lora_r=4,8,16", grid=True), {}
    fits = lambda params: params["lora_r"] < 16  # noqa: E731
    while found := propose.next_trial(config, known, fits):
        known[found[0]] = replace(trial(found[0]), params=found[1])
    assert [one.params["lora_r"] for one in known.values()] == [4, 8]
    assert propose.next_trial(config, known, ALL_FIT) == (3, {"lora_r": 16})
    small = [propose.next_trial(sweep(seed=seed), {}, fits)[1]["lora_r"] for seed in range(12)]
    assert set(small) == {4, 8}
    assert propose.next_trial(sweep(), {}, lambda _: False) is None


def test_nothing_is_tried_twice_while_there_is_something_else():
    config, known = sweep("lora_r=4,8,16 dora=true,false", trials=5), {}
    while found := propose.next_trial(config, known, ALL_FIT):
        known[found[0]] = replace(trial(found[0], losses=curve(1 + found[1]["lora_r"])), params=found[1])
    assert len({(one.params["lora_r"], one.params["dora"]) for one in known.values()}) == 5


def test_of_a_sweep_that_gets_enough_trials_for_all_that_is_listed_the_rest_is_tried():
    """With fewer, Optuna has chosen; its trials do not stand at the places of the list."""
    config, known = sweep("lora_r=4,8,16", trials=20), {1: replace(trial(1), params={"lora_r": 16})}
    known[2] = replace(trial(2, "running"), params={"lora_r": 4})
    assert propose.next_trial(config, known, ALL_FIT) == (3, {"lora_r": 8})
    del known[2]
    assert propose.next_trial(config, known, ALL_FIT) == (3, {"lora_r": 4})
    known[3] = replace(trial(3), params={"lora_r": 4})
    assert propose.next_trial(config, known, ALL_FIT) == (2, {"lora_r": 8})


def test_a_trial_that_falls_behind_is_ended_and_a_good_one_is_not():
    config = sweep()
    known = as_known(trial(n, losses=curve(1 + n / 10)) for n in range(1, 7))
    for looks, loss, is_behind in ((1, 2.9, False), (2, 2.9, True), (2, 0.5, False), (8, 0.5, False)):
        own = trial(7, "running", curve(loss, looks=looks))
        assert propose.is_behind(config, known | {7: own}, 7) is is_behind, (looks, loss)
    bad = known | {7: trial(7, "running", curve(2.9, looks=2))}
    assert not propose.is_behind(sweep(prune="off"), bad, 7)
    assert not propose.is_behind(config, {7: trial(7, "running")}, 7), "it was not looked at yet"


def test_hyperband_ends_some_too():
    config = sweep(prune="hyperband")
    known = as_known(trial(n, losses=curve(1 + n / 100)) for n in range(1, 20))
    late = [trial(number, "running", curve(2.99, looks=3)) for number in range(20, 30)]
    assert any(propose.is_behind(config, known | {one.number: one}, one.number) for one in late)


def test_a_trial_that_failed_counts_as_the_worst():
    config = sweep("learning_rate=1e-5..1e-1:log", prune="off")
    known = as_known(trial(n, "failed", learning_rate=0.1 / n) for n in range(1, 6))
    known |= as_known(trial(n, losses=curve(1), learning_rate=1e-5 * n) for n in range(6, 20))
    low = [propose.next_trial(sweep("learning_rate=1e-5..1e-1:log", seed=seed), known, ALL_FIT)[1] for seed in range(8)]
    assert sum(one["learning_rate"] < 1e-2 for one in low) >= 6, low
    assert propose.study_of(config, known.values()).best_value == 1


# -- the recipe --------------------------------------------------------------------------------------------------------


def recipe(tmp_path, **more):
    return SweepRecipe(sweep(home=str(tmp_path), run="s", **more))


def result(params, state="done", loss=1.0, reason=""):
    losses = [] if loss is None else [[10, loss + 1], [80, loss]]
    return {"params": params, "state": state, "losses": losses, "loss": loss, "total": 80, "reason": reason}


def done(number, state="done", loss=1.0, reason="", node="a", **params):
    params = {"learning_rate": 1e-3, "lora_r": 8} | params
    return Done(Piece(number, {"params": params}), node, 60.0, result(params, state, loss, reason))


def test_it_writes_all_trials_the_best_first_and_the_best_as_a_run(tmp_path):
    made = recipe(tmp_path)
    asked = {"model": "tiny", "dataset": "./notes.jsonl", "epochs": "2"}
    sweeps_own = {"recipe": "sweep", "search": SEARCH, "trials": "3", "run": "s", "then": "suspend"}
    (tmp_path / "logs/runs/s").mkdir(parents=True)
    (tmp_path / "logs/runs/s/launch.json").write_text(json.dumps({"asked": asked | sweeps_own}))
    over = {
        1: done(1, loss=2.0),
        2: done(2, "pruned", 0.5),
        3: done(3, loss=1.5, lora_r=16, node="b"),
        4: done(4, "failed", None, "out of memory"),
    }
    folder = made.finish(Known(over, {}))
    assert folder == tmp_path / "results/s/sweep"
    told = json.loads((folder / "sweep.json").read_text())
    assert [one["trial"] for one in told["trials"]] == [3, 1, 2, 4] and told["trials"][0]["node"] == "b"
    text = (folder / "best.yml").read_text()
    assert yaml.safe_load(text) == asked | {"recipe": "sft", "learning_rate": 1e-3, "lora_r": 16}
    assert "trial 3, held-out loss 1.5000" in text
    assert made.finish(Known(over | {5: done(5, loss=1.0)}, {})) == folder, "again, with another one"
    assert "trial 5" in (folder / "best.yml").read_text()
    assert made.words(over[3]) == "trial 3 held-out loss 1.5000 · learning_rate 0.001  lora_r 16"
    assert made.words(over[4]) == "trial 4 failed: out of memory · learning_rate 0.001  lora_r 8"


def test_a_sweep_of_which_all_fail_ends_with_the_reason(tmp_path):
    made = recipe(tmp_path)
    over = {n: done(n, "failed", None, "the disk is full") for n in range(1, GIVE_UP_AFTER)}
    assert not made.is_over(Known(over, {}))
    over[GIVE_UP_AFTER] = done(GIVE_UP_AFTER, "failed", None, "the disk is full")
    assert made.is_over(Known(over, {}))
    with pytest.raises(CheckFailed, match="no trial came to its end: the disk is full"):
        made.finish(Known(over, {}))
    assert not made.is_over(Known(over | {6: done(6)}, {})), "one that succeeded: it goes on"


def test_what_does_not_fit_a_machine_is_not_taken_there(tmp_path):
    made = recipe(tmp_path, grid=True, search="lora_r=4,65536")
    made.base = sft.start(made.config.trial({}), print)
    small = Device("a", "cuda:0", 6 << 30, bf16=True, unsloth=False, bitsandbytes=False)
    made.device = small
    assert made.fits({"lora_r": 4}) and not made.fits({"lora_r": 65536})
    first = Known({1: Done(Piece(1, {}), "a", 60.0, result({"lora_r": 4}))}, {})
    assert made.next(first) is None and not made.may_take(Piece(2, {"params": {"lora_r": 65536}}))
    made.device = Device("a", "cuda:0", 80 << 30, bf16=True, unsloth=False, bitsandbytes=False)
    assert made.next(first).what == {"params": {"lora_r": 65536}}


def test_a_trial_runs_in_a_home_of_its_own_with_links_to_what_all_share(tmp_path):
    (tmp_path / "data").mkdir()
    made = recipe(tmp_path, max_steps=80)
    config = made.trial(Piece(3, {"params": {"lora_r": 16}}))
    assert (config.lora_r, config.eval_every, config.run) == (16, 10, "trial-3")
    home = made.home(3)
    file = home.furnish(tmp_path, config)
    assert (home.folder / "data").resolve() == tmp_path / "data" and config.home_folder == home.folder.resolve()
    assert yaml.safe_load(file.read_text())["lora_r"] == 16
    (home.folder / "models/checkpoints").mkdir()
    home.furnish(tmp_path, config)
    assert (home.folder / "models/checkpoints").exists(), "it continues where it was"
    home.furnish(tmp_path, made.trial(Piece(3, {"params": {"lora_r": 8}})))
    assert not (home.folder / "models/checkpoints").exists(), "other settings begin again"


def test_of_trials_that_ended_the_best_ones_result_stays(tmp_path):
    made = recipe(tmp_path)
    for number in (1, 2, 3, 4):
        folder = made.home(number).folder
        (folder / "results/adapter").mkdir(parents=True)
        (folder / "models").mkdir()
    known = Known(
        {1: done(1, loss=2.0), 2: done(2, loss=1.0)},
        {3: Taken(Piece(3, {"params": {}}), ("b", "a")), 4: Taken(Piece(4, {"params": {}}), ("b",))},
    )
    made.tidy(known, "a")
    assert sorted(path.name for path in (tmp_path / "models/checkpoints/s/trials").iterdir()) == ["trial-2", "trial-3"]
    assert not (made.home(2).folder / "models").exists() and (made.home(2).folder / "results/adapter").is_dir()
    assert (made.home(3).folder / "models").exists(), "it is trained here, by another process or after a restart"


def test_its_process_is_in_no_group_and_on_one_card():
    given = {"RANK": "1", "MASTER_ADDR": "x", "MOTLEY_AGENT": "7", "MOTLEY_NODE": "a", "CUDA_VISIBLE_DEVICES": "4,5"}
    assert alone(given, "cuda:1") == {"MOTLEY_NODE": "a", "CUDA_VISIBLE_DEVICES": "5"}
    assert alone({"HOME": "/x"}, "cpu") == {"HOME": "/x"}


@pytest.mark.parametrize(("failure", "output", "code", "words"), [
    ("CUDA error: out of memory", "", 1, "out of memory"),
    ("", "torch.OutOfMemoryError: CUDA out of memory. Tried", 1, "out of memory"),
    ("", "", -9, "it was killed: out of memory, most likely"),
    ("LossNotFiniteError: the loss is nan\nmore", "", 1, "LossNotFiniteError: the loss is nan"),
    ("", "Traceback\nValueError: odd", 1, "ValueError: odd"),
])  # fmt: skip
def test_why_a_trial_failed_is_one_line(tmp_path, failure, output, code, words):
    (tmp_path / "output.log").write_text(output)
    process = SimpleNamespace(failure=failure, output=tmp_path / "output.log", process=SimpleNamespace(returncode=code))
    assert Process.why_failed(process) == words


def test_without_held_out_rows_it_says_what_to_do(tmp_path):
    made = SweepRecipe(sweep(home=str(tmp_path), dataset=str(make_rows(tmp_path, held_out=0))))
    desk = SimpleNamespace(device="cpu", node="a", doing=lambda _: None)
    with pytest.raises(BadInput, match="no rows are held out, and trials are compared by them"):
        made.load(desk)


class Played:
    """The process of a trial, look by look: held-out losses, None for a look at which it only steps."""

    was_told_to_leave = False

    def __init__(self, curve, code=0):
        self.waiting, self.code, self.losses, self.total = list(curve), code, [], 80
        self.is_heard, self.ended = False, ""

    def poll(self):
        return None if self.waiting else self.code

    def news(self):
        self.is_heard = bool(self.waiting)
        loss = self.waiting.pop(0) if self.waiting else None
        found = [] if loss is None else [(10 * (len(self.losses) + 1), loss)]
        self.losses += found
        return found

    def end(self, *, saves):
        self.ended = "saves" if saves else "at once"

    def why_failed(self):
        return "out of memory"


class Desk:
    node, device = "a", "cpu"

    def __init__(self, known=Known({}, {})):  # noqa: B008 - it is frozen
        self.told, self.is_stopped, self.known = [], threading.Event(), lambda: known
        self.heard = False

    def note(self, fact):
        self.told.append(fact)

    def lives(self):
        self.heard = True


PIECE = Piece(9, {"params": {"learning_rate": 1e-3, "lora_r": 8}})


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.setattr("train.recipes.sweep.recipe.WATCH_S", 0.001)
    made = recipe(tmp_path)
    made.config.log_folder.mkdir(parents=True)
    (made.config.log_folder / "events.jsonl").touch()
    return made


def test_a_trial_tells_each_loss_and_that_it_lives(quick):
    log, desk = quick.config.log_folder / "events.jsonl", Desk()
    os.utime(log, (1.0, 1.0))
    found = quick.watched(Played([3.0, None, 2.0]), PIECE, desk)
    assert (found["state"], found["loss"], found["losses"]) == ("done", 2.0, [[10, 3.0], [20, 2.0]])
    assert found["params"] == PIECE.what["params"]
    assert desk.told == [
        {"step": 10, "loss": 3.0, "total": 80},
        {"step": 20, "loss": 2.0, "total": 80},
        {"state": "done", "reason": ""},
    ]
    assert log.stat().st_mtime > 1.0 and desk.heard, "between its losses its agent sees that it lives"
    os.utime(log, (1.0, 1.0))
    desk.heard = False
    quick.watched(Played([]), PIECE, desk)
    assert log.stat().st_mtime == 1.0 and not desk.heard, "one that hangs shows no life"


def test_a_trial_that_is_behind_ends_at_once_and_one_that_fails_says_why(quick):
    known = Known({number: done(number, loss=number / 100) for number in range(1, 7)}, {})
    known.done[1].result["losses"] = [[10 * look, 1.0] for look in range(1, 9)]
    bad = Played([3.0, 3.0, 3.0, 3.0])
    found = quick.watched(bad, PIECE, Desk(known))
    assert (found["state"], bad.ended, len(found["losses"])) == ("pruned", "at once", 2)
    found = quick.watched(Played([3.0], code=1), PIECE, Desk())
    assert (found["state"], found["reason"], found["loss"]) == ("failed", "out of memory", 3.0)


def test_a_trial_whose_machine_leaves_is_saved_and_counts_nothing(quick):
    desk, process = Desk(), Played([3.0, 2.0])
    desk.is_stopped.set()
    assert quick.watched(process, PIECE, desk) == {} and process.ended == "saves"
    told, desk = Played([3.0], code=143), Desk()
    told.was_told_to_leave = True
    threading.Timer(0.05, desk.is_stopped.set).start()
    assert quick.watched(told, PIECE, desk) == {}, "it heard first that the run is stopped"


# -- for real ----------------------------------------------------------------------------------------------------------

REAL = {
    **{"recipe": "sweep", "model": "tiny", "run": "run", "search": "learning_rate=1e-4..1e-1:log lora_r=4,8"},
    **{"trials": 3, "max_steps": 8, "rows_per_step": 2, "max_seq_length": 64, "eval_rows": 8, "prune": "off"},
}


def test_three_processes_train_its_trials_and_write_the_same(tmp_path):
    cluster = Cluster(tmp_path, REAL, size=3)
    cluster.wait(400)
    told = [(cluster.result(rank, "sweep") / "sweep.json").read_text() for rank in range(3)]
    assert told[0] == told[1] == told[2]
    trials = json.loads(told[0])["trials"]
    assert sorted(one["trial"] for one in trials) == [1, 2, 3]
    assert all(one["state"] == "done" and one["steps"] == 8 and one["total"] == 8 for one in trials)
    assert len({one["node"] for one in trials}) > 1 and len({json.dumps(one["params"]) for one in trials}) == 3
    losses = [one["loss"] for one in trials]
    assert losses == sorted(losses)
    found = yaml.safe_load((cluster.result(name="sweep") / "best.yml").read_text())
    assert {name: found[name] for name in ("learning_rate", "lora_r")} == trials[0]["params"]
    del found["recipe"]
    last = train(tmp_path / "again", found).events(kind="eval")[-1]
    assert abs(last["loss"] - trials[0]["losses"][-1][1]) < 1e-4, "the best one's settings lead to its loss"


def told(agents, name):
    """Of each trial the steps whose held-out loss is known."""
    found = {}
    for event in agents.events(name):
        if event["event"] == "note" and "loss" in event["fact"]:
            found.setdefault(event["piece"], []).append(event["fact"]["step"])
    return found


@pytest.mark.long  # test_generate.py loses and stops such a run; test_a_trial_whose_machine_leaves…
def test_a_sweep_outlives_a_lost_machine_and_a_stop(tmp_path):
    """One is killed within its trial, the run is stopped and goes on; each trial is in the record once."""
    agents = Agents(tmp_path, REAL | {"max_steps": 40, "save_every": 5, "eval_every": 5}, size=3)
    agents.start()
    agents.wait(lambda: len(told(agents, "node-1")) >= 2, 200, "no trial has begun")
    agents.kill("node-0")
    agents.wait(lambda: any(event["event"] == "piece" for event in agents.events("node-1")), 200, "no trial has ended")
    agents.stop(within_s=90)
    kept = [json.loads(line) for line in (agents.folder("node-1") / "models/checkpoints/run/pieces.jsonl").open()]
    assert 1 <= len(kept) < 3
    agents.start()
    assert agents.ended() == [0, 0, 0]
    told_by = {(agents.folder(name) / "results/run/sweep/sweep.json").read_text() for name in agents.names}
    assert len(told_by) == 1
    trials = json.loads(told_by.pop())["trials"]
    assert sorted(one["trial"] for one in trials) == [1, 2, 3]
    before = {one["piece"]["number"]: one["result"]["loss"] for one in kept}
    assert before.items() <= {one["trial"]: one["loss"] for one in trials}.items()
    assert all(one["state"] == "done" and one["steps"] == 40 for one in trials)
