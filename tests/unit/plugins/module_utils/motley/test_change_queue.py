"""What people do to the queue on a node, with folders for nodes and processes that say which part of a run they are."""

from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.motley import change_queue
from train.plan.launch.cluster_config import ClusterConfig, Member
from train.runlog import paths, queue_files
from train.runlog.queue_order import End, Entry, Queue, launch_of
from train.runlog.secret import Secret

TOKEN, NEXT = "0123456789abcdef", "fedcba9876543210"
NODES = (("a", "10.0.0.1"), ("b", "10.0.0.2"))
FIRST = Entry(launch=launch_of(TOKEN), run="first", nodes=NODES, added=1.0)
SECOND = Entry(launch=launch_of(NEXT), run="second", nodes=NODES, added=2.0)
QUEUE = Queue(key="k").added(FIRST, SECOND)
MEMBERS = tuple(Member(name=name, address=address) for name, address in NODES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A node on which the first run was launched, and that has the files of the second."""
    for folder, run, token in ((tmp_path, "first", TOKEN), (tmp_path / paths.QUEUE / "second", "second", NEXT)):
        (folder / "config").mkdir(parents=True)
        (folder / paths.CLUSTER).write_text(ClusterConfig(run=run, node="a", nodes=MEMBERS).to_text())
        (folder / paths.SECRET).write_text(Secret(token=token, messages="https://me").to_json())
        (folder / paths.SECRET).chmod(0o600)
        (folder / paths.SETTINGS).write_text(f"run: {run}\n")
        (folder / "scripts").mkdir()
        (folder / "scripts/launch_cluster.sh").write_text(f"# {run}\n")
        (folder / "scripts/launch_cluster.sh").chmod(0o700)
    return tmp_path


def wants(home: Path) -> None:
    (home / paths.WANTED).write_text("first\n")


def starts(_: Path, run: str) -> dict[str, Any]:
    return {"run": run}


def test_what_a_node_knows_is_its_agents_list_and_what_people_changed(home: Path) -> None:
    (home / paths.QUEUE_LIST).write_text(QUEUE.ended(FIRST.launch, End(how="done")).to_json())
    queue_files.ask(home, QUEUE.moved("second", 1))
    assert [one.run for one in queue_files.known(home).waiting()] == ["second"]
    assert (home / paths.QUEUE_ASKED).stat().st_mode & 0o777 == 0o600, "it holds the queue's secret"
    (home / paths.QUEUE_ASKED).write_text("{torn")
    assert queue_files.known(home).of(SECOND.launch).moves == 0


def test_a_node_says_which_launch_it_is_on_so_that_it_can_be_put_into_the_queue(home: Path) -> None:
    assert change_queue.queue(home)["launch"] == ""
    wants(home)
    answer = change_queue.queue(home)
    assert (answer["run"], answer["launch"]) == ("first", FIRST.launch)
    assert [tuple(node) for node in answer["nodes"]] == [*NODES]
    assert TOKEN not in str(answer)


def test_a_run_that_is_added_begins_where_nothing_is_on(home: Path) -> None:
    queue = Queue(key="k").added(SECOND)
    assert change_queue.enqueue(home, queue.to_json(), "a", starts, SECOND.launch) == {"begun": "second"}
    assert queue_files.launch_in(home) == SECOND.launch
    assert (home / "scripts/launch_cluster.sh").read_text() == "# second\n"
    assert (home / "scripts/launch_cluster.sh").stat().st_mode & 0o777 == 0o700
    assert (home / paths.SECRET).stat().st_mode & 0o777 == 0o600
    assert change_queue.waiting(home) == ["second"]


def test_where_a_run_is_on_its_agent_takes_the_other_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(home)
    (home / paths.QUEUE_LIST).write_text(QUEUE.to_json())
    assert change_queue.enqueue(home, QUEUE.to_json(), "a", starts, SECOND.launch) == {"begun": ""}
    assert queue_files.launch_in(home) == FIRST.launch, "its files stay"
    (home / paths.QUEUE_LIST).unlink()
    monkeypatch.setattr(change_queue, "TAKEN_S", 0.3)
    failed = change_queue.enqueue(home, QUEUE.to_json(), "a", starts, SECOND.launch)["failed"]
    assert failed == "the agent of 'first' is of an older version\nfix: ./motley stop, then launch it again"


def test_files_of_another_launch_are_not_put_in_place(home: Path) -> None:
    other = Queue(key="k").added(Entry(launch="other", run="second", nodes=NODES, added=2.0))
    failed = change_queue.enqueue(home, other.to_json(), "a", starts, "other")["failed"]
    assert failed.startswith("config/queue/second has not what was launched; ./motley queue --remove second")
    assert queue_files.launch_in(home) == FIRST.launch


def test_what_was_to_follow_the_run_before_is_not_done_and_the_unit_wants_the_next(home: Path) -> None:
    wants(home)
    (home / paths.THEN).write_text("suspend\n")
    assert queue_files.put_in_place(home, SECOND) == ""
    assert not (home / paths.THEN).exists() and (home / paths.WANTED).read_text() == "second\n"


def test_whose_the_files_are_is_written_last(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the power goes before, the next start sees that they are not the next run's yet."""
    written = []
    monkeypatch.setattr(queue_files, "write_atomic", lambda path, *_, **__: written.append(path.name))
    queue_files.put_in_place(home, SECOND)
    assert len(written) == 4 and written[-1] == "secret.json"


def test_a_run_is_left_for_the_next_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here its agent is one that does so after two looks."""
    wants(home)
    looks = iter([{1: {"part": "agent"}}, {1: {"part": "agent"}}])

    def processes(_: Path) -> dict[int, Any]:
        found = next(looks, None)
        if found is None:
            queue_files.put_in_place(home, SECOND)
        return found or {2: {"part": "agent"}}

    monkeypatch.setattr(change_queue, "processes", processes)
    change = QUEUE.ended(FIRST.launch, End(how="stopped", time=3.0))
    answer = change_queue.leave(home, change.to_json(), FIRST.launch)
    assert answer["was_on"] and answer["run"] == "first" and answer["left"] == [] and answer["forced"] == 0
    assert change_queue.waiting(home) == ["second"]
    assert not change_queue.leave(home, change.to_json(), FIRST.launch)["was_on"], "it is on the next one already"


def test_an_agent_that_does_not_leave_is_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(home)
    killed: list[int] = []
    monkeypatch.setattr(change_queue, "processes", lambda _: {} if killed else {7: {"part": "agent"}})
    monkeypatch.setattr(change_queue, "end", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(change_queue, "LEAVE_S", 0.2)
    change = QUEUE.ended(FIRST.launch, End(how="stopped", time=3.0))
    answer = change_queue.leave(home, change.to_json(), FIRST.launch)
    assert set(killed) == {7} and answer["forced"] == 1
