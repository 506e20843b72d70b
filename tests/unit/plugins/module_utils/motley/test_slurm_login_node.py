"""Runs as jobs of Slurm, from what squeue prints and what the places hold; a real Slurm: tests/lab/test_slurm.py."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from console.watch.follow import GONE_S
from plugins.module_utils.motley import slurm_login_node
from tests.support import reported

QUEUE = """\
12|12|RUNNING|motley-qa|2026-11-27T03:00:00|a,b
13|13|PENDING|motley-notes.v2|N/A|(Resources)
14|14|RUNNING|somebody|2026-11-27T03:00:00|c
15_1|17|RUNNING|motley-tries|2026-11-27T03:00:00|c
"""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_login_node, "slurm", lambda *_, **__: QUEUE)


def has(home: Path, run: str, *, place: int = 0, state: str = "training", age_s: float = 0, step: int = 0) -> None:
    job = home / "jobs" / run
    agent = job / f"place-{place}/logs/runs/{run}/agent.json"
    agent.parent.mkdir(parents=True, exist_ok=True)
    agent.write_text(json.dumps({"state": state, "time": time.time() - age_s, "reason": ""}))
    os.utime(agent, (time.time() - age_s,) * 2)
    (job / f"place-{place}/models/checkpoints/{run}/step-{step}").mkdir(parents=True, exist_ok=True)
    (job / "job.json").write_text(json.dumps({"job": "12", "options": ["--partition=gpu", "--nodes=3", "--gpus=4"]}))


@pytest.mark.usefixtures("queue")
def test_of_the_queue_our_runs_are_known_by_name() -> None:
    found = slurm_login_node.queue()
    assert {run: (job["job"], job["state"], job["why"]) for run, job in found.items()} == {
        "qa": ("12", "RUNNING", "a,b"),
        "notes.v2": ("13", "PENDING", "Resources"),
        "tries-1": ("15_1", "RUNNING", "c"),
    }


@pytest.mark.usefixtures("queue")
def test_the_run_that_is_meant_is_the_one_that_runs(tmp_path: Path) -> None:
    for run in ("qa", "notes.v2", "old"):
        has(tmp_path, run)
    assert slurm_login_node.newest(tmp_path, slurm_login_node.queue()) == "qa"
    assert slurm_login_node.newest(tmp_path, {"notes.v2": {"state": "PENDING"}}) == "notes.v2"
    assert slurm_login_node.newest(tmp_path, {}) == "old"


def test_a_reader_stays_with_a_place_that_writes_and_leaves_one_that_is_silent(tmp_path: Path) -> None:
    has(tmp_path, "qa", place=0, age_s=60)
    has(tmp_path, "qa", place=2, age_s=0)
    has(tmp_path, "qa", place=10, age_s=1)
    assert slurm_login_node.freshest(tmp_path, "qa").name == "place-2"
    has(tmp_path, "qa", place=2, age_s=90)
    has(tmp_path, "qa", place=10, age_s=70)
    assert slurm_login_node.freshest(tmp_path, "qa").name == "place-0"
    assert [path.name for path in slurm_login_node.places(tmp_path, "qa")] == ["place-0", "place-2", "place-10"]


@pytest.mark.usefixtures("queue")
def test_a_run_whose_agents_are_gone_waits_for_its_turn(tmp_path: Path) -> None:
    has(tmp_path, "notes.v2", age_s=100, step=40)
    looked = slurm_login_node.look(tmp_path)
    assert (looked["run"], looked["on"], looked["checkpoint"]) == ("notes.v2", True, 40)
    assert looked["now"]["reason"] == "job 13 is pending: Resources"
    assert looked["how"].startswith("job 13, pending; also qa")


def test_a_job_that_is_queued_again_waits_for_a_time_that_slurm_says() -> None:
    job = {"shown": "3", "state": "PENDING", "why": "BeginTime", "start": "2026-11-27T03:41:37"}
    assert slurm_login_node.waits(job) == "job 3 is pending: BeginTime, not before 2026-11-27T03:41:37"
    assert slurm_login_node.waits(job | {"start": "N/A"}) == "job 3 is pending: BeginTime"


@pytest.mark.usefixtures("queue")
def test_what_is_queued_already_is_not_submitted_again(tmp_path: Path) -> None:
    assert slurm_login_node.start(tmp_path, ["qa"], [])["failed"] == "run 'qa' is job 12 already\nfix: ./motley stop"


@pytest.mark.usefixtures("queue")
def test_for_a_question_slurm_is_asked_for_one_node_of_that_kind(tmp_path: Path) -> None:
    has(tmp_path, "qa")
    asked = slurm_login_node.parts(tmp_path, "")
    assert (asked["run"], asked["one_node"]) == ("qa", ["--partition=gpu", "--gpus=1"])
    assert slurm_login_node.one_node(["-p gpu", "--time=10"]) == ["-p", "gpu"]
    quoted = ["'--constraint=a|b'", "'--nodelist=n[1-2]'", "'--comment=a b'"]
    assert slurm_login_node.one_node(quoted) == ["--constraint=a|b"]
    assert slurm_login_node.one_node(["-pgpu", "'-Ca|b'", "--gres gpu:2"]) == ["-pgpu", "-Ca|b", "--gpus=1"]


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--gres=gpu:2", (True, 2)),
        ("--gres gpu:2", (True, 2)),
        ("--gres=gpu:tesla-v100:2,shard:4", (True, 2)),
        ("--gres=gpu", (True, 1)),
        ("--gres=shard:4", (False, None)),
        ("--tres-per-node=gres/gpu:2", (True, 2)),
        ("--tres-per-node=gres/gpu=2", (True, 2)),
        ("--gpus-per-node 1", (True, 1)),
        ("--gpus-per-node=tesla-v100:2", (True, 2)),
        ("--gpus=4", (True, None)),
        ("-G4", (True, None)),
        ("-G 4", (True, None)),
        ("--partition=gpu", (False, None)),
    ],
)
def test_cards_are_asked_for_in_each_of_slurms_ways(option: str, wanted: tuple[bool, int | None]) -> None:
    assert slurm_login_node.cards_asked(["--nodes=3", option]) == wanted


@pytest.mark.usefixtures("queue")
def test_checkpoints_of_what_runs_stay(tmp_path: Path) -> None:
    has(tmp_path, "qa", step=10)
    has(tmp_path, "old", step=10)
    (tmp_path / "jobs/old/place-0/models/checkpoints/old/step-10/weights").write_bytes(b"1234")
    assert slurm_login_node.clean(tmp_path, ["qa", "old"]) == {"freed": {"old": 4}}
    assert (tmp_path / "jobs/qa/place-0/models/checkpoints/qa/step-10").exists()


@pytest.mark.usefixtures("queue")
def test_the_last_words_stay_until_the_reader_has_waited_long_enough(tmp_path: Path) -> None:
    has(tmp_path, "old")
    out = tmp_path / "jobs/old" / slurm_login_node.OUTPUT / "12.out"
    out.parent.mkdir(parents=True)
    out.write_text("torch is missing\n")
    views = reported.views(lambda: slurm_login_node.report(tmp_path, "old"), slurm_login_node, 2 * GONE_S)
    late = [view for at_s, view in views if at_s >= GONE_S]
    assert late and all(view.get("words") == "torch is missing" for view in late)
