"""Agents with real workers on loopback addresses: what is lost, and what comes back."""

import os
import signal
import time

import pytest

from tests.support import pace
from tests.support.pids import is_alive
from tests.train import cluster
from tests.train.agents import ENDLESS, Agents


@pytest.fixture(scope="module")
def three(data, tmp_path_factory):
    """2 + 1 + 1 processes that train for ever; each test leaves them so. The last one starts as on a node."""
    agents = Agents(tmp_path_factory.mktemp("three"), ENDLESS | {"dataset": data}, processes={0: 2}, cold=True)
    agents.start("node-2")
    agents.cold = False
    agents.start("node-0", "node-1")
    agents.together(*agents.names, within_s=90)
    yield agents
    agents.stop()


@pytest.fixture(autouse=True)
def _keep_the_three():
    """The module's agents outlive a single test; conftest's fixture ends all others."""
    yield
    cluster.STARTED[:] = [p for p in cluster.STARTED if "three" not in str(p.args)]


def test_a_killed_worker_process_is_replaced(three):
    before = three.last_step("node-0")["step"]
    victim = three.workers("node-1")[0]
    os.kill(victim, signal.SIGKILL)
    three.together(*three.names, step=before, within_s=40)
    failed = three.members("node-1", "failed")[-1]
    assert "SIGKILL" in failed["reason"] and failed["nodes"] == ["node-1"]


def test_without_a_warm_process_its_workers_start_all_the_same(three):
    before = three.last_step("node-2")["step"]
    workers = three.workers("node-2")
    (warm,) = [pid for pid in three.children("node-2") if pid not in workers]
    for pid in (warm, *workers):
        os.kill(pid, signal.SIGKILL)
    three.together(*three.names, step=before, within_s=40)


def test_a_lost_head_is_replaced_and_comes_back_as_a_plain_node(three):
    orphans = three.workers("node-0")
    three.kill("node-0")
    three.together("node-1", "node-2", within_s=40)
    assert not any(is_alive(pid) for pid in orphans), "its workers outlived the agent"
    assert three.now("node-2")["host"] == "node-1"
    three.start("node-0")
    three.together(*three.names, within_s=40)
    assert three.now("node-0")["host"] == "node-1"
    epochs = [event["epoch"] for event in three.members("node-0", "plan")]
    assert epochs == sorted(set(epochs))


def test_a_machine_that_somebody_needs_leaves_frees_its_memory_and_comes_back(three):
    """By the file alone, as who sits there makes it: the host, as any other."""
    name = three.now("node-1")["host"]
    rest = [other for other in three.names if other != name]
    held, file, began = three.workers(name), three.folder(name) / "pause", time.time()
    file.touch()
    pace.until(lambda: not any(is_alive(pid) for pid in held), 5, "its memory is not free")
    took_s = time.time() - began
    three.together(*rest, since=began, within_s=30)
    assert took_s < pace.seconds(5)
    assert three.now(name)["state"] == "away" and "paused" in three.now(name)["reason"]
    lost = [event for other in rest for event in three.members(other, "lost") if event["time"] > began]
    assert any(f"lost {name} (steps aside: paused)" in event["reason"] for event in lost)
    assert not three.workers(name)
    file.write_text("4s\n")  # a pause with a time ends by itself
    three.wait(lambda: "until " in three.now(name)["reason"], 20, "it does not say until when")
    three.together(*three.names, within_s=60)
    of_it = [event["event"] for event in three.members(name) if event["event"] in ("away", "back")]
    assert of_it[-2:] == ["away", "back"]
    file.unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.long)])
def test_a_planned_leave_is_announced(three, number):
    """Slurm's SIGUSR1 goes to all that an agent has started as well."""
    began = time.time()
    for pid in three.children("node-2") if number == signal.SIGUSR1 else []:
        os.kill(pid, number)
    assert three.stop("node-2", number=number) == [143]
    three.together("node-0", "node-1", since=began, within_s=30)
    lost = [event for event in three.members("node-1", "lost") if event["nodes"] == ["node-2"]][-1]
    assert "leaving" in "".join(e["reason"] for e in three.members(lost["host"], "lost"))
    assert lost["time"] - began < pace.seconds(2), "they waited for silence"
    three.start("node-2")
    three.together(*three.names, within_s=40)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("nowhere", "nowhere"),
        pytest.param("rows", "do not train the same thing", marks=pytest.mark.long),  # the row above
    ],
)
def test_a_node_that_cannot_train_is_left_out_and_named(other, said, three, tmp_path):
    """Its data is gone, or is not that of the majority; the others, who have trained without it, go on."""
    cluster.make_rows(tmp_path / "rows", 60, 4, seed=9)
    three.stop("node-2")
    three.together("node-0", "node-1", within_s=40)
    three.odd["node-2"] = {"dataset": tmp_path / other}
    three.start("node-2")
    three.wait(lambda: three.now("node-2").get("state") == "unfit", 40, "it is not left out")
    three.together("node-0", "node-1", within_s=40)
    assert said in three.members("node-2", "unfit")[-1]["reason"]
    told = lambda: three.now("node-0")["peers"]["node-2"]["condition"] == "unfit"  # noqa: E731
    three.wait(told, 10, "the others do not hear of it")
    three.stop("node-2")
    three.odd.clear()
    three.start("node-2")
    three.together(*three.names, within_s=40)
