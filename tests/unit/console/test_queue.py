"""./motley queue, and what launch and stop do to it: asked of all nodes, changed here, given to all that answer."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from console import queue as queues
from console import run_commands
from console.infra.machines.node import LocalNode
from console.infra.node import Node, Silent
from console.inventory.read import Inventory
from console.watch import status
from train.errors import BadInput
from train.runlog.queue_order import End, Entry, Queue

NODES = (("a", "10.0.0.1"), ("b", "10.0.0.2"))
NOW = time.time()
RUNS = ("notes", "house", "last")
THREE = Queue(key="k").added(*(Entry(launch=f"l-{run}", run=run, nodes=NODES, added=NOW) for run in RUNS))
TRAINS = {"state": "training", "step": 210, "since": NOW, "reason": "generation 1"}


@dataclasses.dataclass
class Machines:
    """What the nodes know, and what was asked of them; c is off."""

    known: dict[str, Queue]
    launch: str = "l-notes"
    now: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(TRAINS))
    asked: list[str] = dataclasses.field(default_factory=list)
    failed: str = ""

    def nodes(self) -> list[Node]:
        machines = self

        class Fake(LocalNode):
            def queue(self, change: str = "") -> dict[str, Any]:
                if self.name not in machines.known:
                    raise Silent("nobody answers at 10.0.0.3")
                machines.asked.append(f"{self.name} {'changes' if change else 'says'}")
                if change:
                    machines.known[self.name] = machines.known[self.name].merged(Queue.of_json(change))
                run = "notes" if machines.launch else ""
                facts = {"launch": machines.launch, "run": run, "nodes": NODES, "now": machines.now}
                return {"queue": machines.known[self.name].to_json(), **facts}

            def enqueue(self, change: str, launch: str, *, managed: bool) -> dict[str, Any]:
                self.queue(change)
                machines.asked.append(f"{self.name} begins {launch} {managed}")
                return {"failed": machines.failed} if machines.failed else {"begun": ""}

            def leave(self, change: str, launch: str) -> dict[str, Any]:
                self.queue(change)
                machines.asked.append(f"{self.name} leaves {launch}")
                return self.left()

            def stop(self, timeout_s: float = 0) -> dict[str, Any]:
                machines.asked.append(f"{self.name} stops")
                return self.left()

            def left(self) -> dict[str, Any]:
                facts = {"was_on": True, "run": "notes", "checkpoint": 210, "forced": 0, "left": [], "ports": []}
                return {**facts, "seconds": 1.0}

        return [Fake(name=name, home="~") for name in "abc"]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    made = Machines({"a": THREE, "b": THREE})
    for module in (queues, run_commands):
        monkeypatch.setattr(module, "from_inventory", lambda _: made.nodes())
    monkeypatch.setattr(queues, "from_hostvars", lambda *_: made.nodes())
    return made


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(path=tmp_path, nodes={name: {} for name in "abc"})


def shows(inventory: Inventory, **asked: Any) -> int:
    return queues.queue(inventory, **{"move": "", "to": 0, "remove": "", "as_json": False} | asked)


def order(queue: Queue) -> list[str]:
    return [one.run for one in queue.waiting()]


def test_it_shows_the_order_and_why_each_waits(
    machines: Machines, inventory: Inventory, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.now["since"] = at = time.time()  # today, also where the tests began yesterday
    assert shows(inventory) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "3 runs in the queue"
    since = f"since {time.strftime('%H:%M', time.localtime(at))}"
    assert lines[0].split("  ") == ["", "1", "notes", "training", since, "a, b", "step 210"]
    assert lines[1].endswith("until notes has ended") and lines[2].endswith("until house has ended")
    assert lines[3] == "  c  nobody answers at 10.0.0.3: it learns of the queue from the others"


def test_what_a_machine_alone_knows_counts(machines: Machines, inventory: Inventory, capsys: Any) -> None:
    machines.known["b"] = THREE.ended("l-notes", End(how="failed", time=NOW, reason="no rows\nat all"))
    machines.launch = ""
    assert shows(inventory) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 runs in the queue" and "house  waits" in lines[1] and "have not begun yet" in lines[1]
    assert "notes  failed" in lines[3] and lines[3].endswith("no rows")
    assert sorted(machines.asked) == ["a says", "b says"], "showing changes nothing"


@pytest.mark.parametrize(
    ("asked", "then"),
    [({"move": "last", "to": 2}, ["notes", "last", "house"]), ({"remove": "house"}, ["notes", "last"])],
)
def test_a_change_is_given_to_all_that_answer_and_who_did_not_is_said(
    machines: Machines, inventory: Inventory, capsys: pytest.CaptureFixture[str], asked: Any, then: list[str]
) -> None:
    assert shows(inventory, **asked) == 1, "one did not take it in"
    assert [order(queue) for queue in machines.known.values()] == [then, then]
    assert "c  nobody answers at 10.0.0.3: it learns of the queue from the others" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"move": "none", "to": 1}, "no run 'none' is in the queue\nfix: one of notes, house, last"),
        ({"move": "last", "to": 9}, "to: 9 is no place\nfix: a number from 1 to 3"),
        ({"move": "last"}, "one change at a time"),
        ({"to": 2}, "one change at a time"),
        ({"move": "last", "to": 1, "remove": "house"}, "one change at a time"),
        ({"remove": "none"}, "no run 'none'"),
    ],
)
def test_what_is_no_change_changes_nothing(machines: Machines, inventory: Inventory, asked: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        shows(inventory, **asked)
    assert not [what for what in machines.asked if "changes" in what]


def test_as_data(machines: Machines, inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    assert shows(inventory, as_json=True) == 0
    facts = json.loads(capsys.readouterr().out)
    states = {one["run"]: one["state"] for one in facts["queue"]}
    assert states == {"notes": "training", "house": "waits", "last": "waits"}
    assert list(facts["silent"]) == ["c"] and '"k"' not in json.dumps(facts), "the secret is not shown"
    machines.known.clear()
    assert shows(inventory) == 1 and "no node answers" in capsys.readouterr().out


def launch(**more: Any) -> dict[str, Any]:
    return {
        "motley_render_done": {"launch": "l-new"},
        "motley_plan_decided": {"plan": {"run": "new", "nodes": [{"name": n, "address": a} for n, a in NODES]}},
        "groups": {"cluster": list("abc")},
        "hostvars": {name: {"motley_manage_host": name == "a"} for name in "abc"},
        **more,
    }


def test_a_launch_goes_behind_all_others_on_all_machines_of_it(machines: Machines) -> None:
    said = queues.put(launch())
    assert [order(queue) for queue in machines.known.values()] == [["notes", "house", "last", "new"]] * 2
    assert {"a begins l-new True", "b begins l-new False"} <= {*machines.asked}
    begins = "new waits: it begins by itself when notes, house, last have ended, also without this computer"
    assert said["motley_lines"][0].startswith(begins)
    assert said["launched"] == {"queued": {"run": "new", "nodes": ["a", "b"], "after": ["notes", "house", "last"]}}


def test_the_first_one_makes_the_secret_and_takes_the_run_that_is_on_before_it(machines: Machines) -> None:
    machines.known = {"a": Queue(), "b": Queue()}
    said = queues.put(launch())
    (queue, other) = machines.known.values()
    assert queue == other and len(queue.key) == 32
    assert [(one.run, one.launch) for one in queue.waiting()] == [("notes", "l-notes"), ("new", "l-new")]
    assert [one.nodes for one in queue.waiting()] == [NODES, NODES]
    assert "when notes has ended" in said["motley_lines"][0]


def test_where_nothing_is_on_it_begins_now(machines: Machines) -> None:
    machines.known, machines.launch = {"a": Queue(), "b": Queue()}, ""
    said = queues.put(launch())
    assert said["motley_lines"][0].startswith("new begins now   watch it: ./motley follow")
    assert said["launched"]["queued"]["after"] == []


def test_a_machine_of_it_that_does_not_take_it_in_fails_the_launch(machines: Machines) -> None:
    machines.failed = "the agent of 'notes' is of an older version"
    with pytest.raises(BadInput, match=r"b: the agent of(.|\n)*fix: ./motley queue --remove new, then launch it again"):
        queues.put(launch())
    machines.failed = ""
    with pytest.raises(BadInput, match="'new' is in the queue already"):
        queues.put(launch())


def test_stop_ends_the_run_that_is_on_and_says_what_comes_next(
    machines: Machines, inventory: Inventory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_commands.stop(inventory) == 1, "c did not answer"
    assert [order(queue) for queue in machines.known.values()] == [["house", "last"]] * 2
    assert "a leaves l-notes" in machines.asked and "a stops" not in machines.asked
    said = capsys.readouterr().out
    assert "run notes stopped at step 210" in said
    assert "next in the queue: house, last   to stop all of it: ./motley stop --all" in said


def test_stop_all_empties_it(machines: Machines, inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    run_commands.stop(inventory, whole_queue=True)
    assert [order(queue) for queue in machines.known.values()] == [[], []]
    ends = {one.run: one.end.how for one in machines.known["a"].entries if one.end}
    assert ends == {"notes": "stopped", "house": "removed", "last": "removed"}
    assert machines.asked.index("a changes") < machines.asked.index("a stops"), "or the next would begin"
    said = capsys.readouterr().out
    assert "run notes stopped at step 210" in said and "taken out of the queue: house, last" in said


def test_without_a_queue_stop_is_as_ever(machines: Machines, inventory: Inventory) -> None:
    machines.known = dict.fromkeys("abc", Queue())
    assert run_commands.stop(inventory) == 0 and "a stops" in machines.asked
    assert not [what for what in machines.asked if "changes" in what]


def test_of_an_infra_with_a_queue_of_its_own_nothing_is_asked(machines: Machines, tmp_path: Path) -> None:
    run_commands.stop(Inventory(path=tmp_path, nodes={"login": {"infra": "slurm"}}))
    assert {what.split()[1] for what in machines.asked} == {"stops"}


def test_status_and_runs_show_what_waits() -> None:
    waiting = [{"waiting": ["a", "b", "c"]}, {}, {"waiting": []}]
    assert status.waiting_line(waiting) == ["  then, by itself: b, c   ./motley queue"]
    assert status.waiting_line([{"waiting": ["a"]}, {}]) == []
    run = {"step": 0, "steps": 0, "loss": None, "time": 0, "done": False, "bytes": 0, "model": ""}
    found = status.gathered({"a": {"runs": {"a": run, "b": run}, "on": "a", "waiting": ["a", "b"]}})
    assert {name: status.run_state(facts) for name, facts in found.items()} == {"a": "running", "b": "waiting"}
