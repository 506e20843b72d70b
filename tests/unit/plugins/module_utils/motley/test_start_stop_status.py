"""What a node does for stop, status, runs and clean: on processes and files of this machine, without any cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from console.infra.node import MARK, Node, program
from console.watch.follow import GONE_S
from plugins.module_utils.motley import pausing, run_unit, start_stop_status
from tests.support import pace, reported

OBEYS = "import time; print('on', flush=True); time.sleep(60)"
ODDLY_NAMED = "import ctypes; ctypes.CDLL(None).prctl(15, 'vierzehn Zeichä'.encode()); " + OBEYS
"""PR_SET_NAME: the kernel cuts the name within a letter."""
IGNORES = "import signal; signal.signal(15, 1); " + OBEYS
LISTENS = "import socket; s = socket.create_server(('127.0.0.1', 29471)); " + OBEYS
Starter = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(start_stop_status, "SAVE_S", 1.0)
    monkeypatch.setattr(start_stop_status, "GO_S", 0.5)
    return start_stop_status


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("config", "logs/runs/r", "models/checkpoints/r/step-8", "models/checkpoints/r/step-10"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    (tmp_path / "home/config/cluster_config.yaml").write_text("run: r\n")
    return tmp_path / "home"


START = {"event": "start", "time": 4.0, "step": 0, "total_steps": 40}


def logs(home: Path, *events: dict[str, Any], begins: str = "", torn: str = "") -> None:
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (home / "logs/runs/r/events.jsonl").write_text(begins + lines + torn)


@pytest.fixture
def starts(home: Path) -> Iterator[Starter]:
    begun: list[subprocess.Popen[bytes]] = []

    def start(code: str, *words: str, of: Path = home, **more: str) -> subprocess.Popen[bytes]:
        env = dict(os.environ, MOTLEY_HOME=str(of), **more)
        process = subprocess.Popen([sys.executable, "-c", code, *words], env=env, stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline() == b"on\n"
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()


def test_stop_asks_the_agent_kills_what_stays_and_touches_nobody_else(
    here: ModuleType, home: Path, starts: Starter, tmp_path: Path
) -> None:
    (home / "config/run-wanted").write_text("r\n")
    agent, stubborn = starts(OBEYS, "train", "agent"), starts(IGNORES, "train", "run")
    other = starts(OBEYS, "train", "agent", of=tmp_path / "other")
    told = here.stop(home)
    assert told["was_on"] and told["run"] == "r" and told["checkpoint"] == 10
    assert (pace.ended(agent, 5), pace.ended(stubborn, 5)) == (-15, -9)
    assert (
        told["forced"] == 1 and told["left"] == [] and told["ports"] == [] and 1.0 <= told["seconds"] < pace.seconds(4)
    )
    assert other.poll() is None and not (home / "config/run-wanted").exists()
    assert not here.stop(home)["was_on"]


LEAVES = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[3])
print("on", flush=True)
while not file.exists():
    time.sleep(0.02)
time.sleep(0.5)
"""


def test_pause_waits_until_the_memory_is_free_and_leaves_the_agent(
    here: ModuleType, home: Path, starts: Starter
) -> None:
    agent, worker = starts(OBEYS, "train", "agent"), starts(LEAVES, "train", "run", str(home / "pause"))
    told = here.pause(home, "2h")
    assert pace.ended(worker, 5) == 0 and agent.poll() is None
    assert told["was_on"] and told["left"] == [] and 0.3 < told["seconds"] < pace.seconds(5)
    assert told["until"].startswith("until ") and here.look(home)["paused"] == told["until"]
    assert here.unpause(home) == {"was": True, "was_on": True}
    assert here.unpause(home) == {"was": False, "was_on": True} and here.look(home)["paused"] == ""
    assert here.pause(home)["until"] == "until unpaused"


def test_pause_says_what_is_still_there(
    here: ModuleType, home: Path, starts: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "FREE_S", 0.3)
    worker = starts(OBEYS, "train", "run")
    assert here.pause(home)["left"] == [worker.pid]


def test_pause_waits_as_long_as_the_workers_may_save(
    here: ModuleType, home: Path, starts: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "FREE_S", 0.3)
    (home / "logs/runs/r/agent.json").write_text(json.dumps({"saves_s": pace.seconds(4)}))
    starts("import time; print('on', flush=True); time.sleep(1)", "train", "run")
    assert here.pause(home)["left"] == []


def test_a_script_cannot_do_without_a_machine(here: ModuleType, home: Path, starts: Starter) -> None:
    (home / "logs/runs/r/agent.json").write_text(json.dumps({"script": "train.py"}))
    starts(OBEYS, "train", "torchrun")
    assert "the script train.py is running" in here.pause(home)["failed"] and not (home / "pause").exists()


KEEPS = """
import pathlib, signal, sys, time
file, lasts = pathlib.Path(sys.argv[3]), float(sys.argv[4])
left = lambda *_: [(file.write_text("{}"), time.sleep(0.1)) for _ in range(int(lasts * 10))] and sys.exit(143)
signal.signal(15, left)
print("on", flush=True)
while True:
    time.sleep(0.05)
"""


def test_an_agent_that_brings_a_checkpoint_to_a_slow_disk_is_given_time(
    here: ModuleType, home: Path, starts: Starter
) -> None:
    agent = starts(KEEPS, "train", "agent", str(home / "logs/runs/r/agent.json"), "1.5")
    starts(OBEYS, "train", "warm")
    told = here.stop(home)
    assert pace.ended(agent, 5) == 143 and told["forced"] <= 1 and told["seconds"] > 1.2


def test_an_agent_that_no_longer_says_how_it_is_is_not(here: ModuleType, home: Path, starts: Starter) -> None:
    (home / "logs/runs/r/agent.json").write_text("{}")
    os.utime(home / "logs/runs/r/agent.json", (1, 1))
    agent = starts(IGNORES, "train", "agent")
    assert here.stop(home)["seconds"] < pace.seconds(4) and pace.ended(agent, 5) == -9


def test_with_an_agent_its_workers_are_left_to_it(here: ModuleType, home: Path, starts: Starter) -> None:
    """It tells them to save; a signal of ours on top would end them in the middle of that."""
    starts(OBEYS, "train", "agent")
    worker = starts("import signal; signal.signal(15, lambda *_: print('asked', flush=True)); " + OBEYS, "train", "run")
    here.stop(home)
    pace.ended(worker, 5)
    assert worker.stdout and worker.stdout.read() == b""


def test_orphans_are_asked_themselves_whatever_is_left_of_their_files(
    here: ModuleType, home: Path, starts: Starter
) -> None:
    orphan = starts(OBEYS, "train", "run")
    (home / "config/cluster_config.yaml").unlink()
    told = here.stop(home)
    assert pace.ended(orphan, 5) == -15 and told["was_on"] and told["forced"] == 0


def test_a_port_of_a_run_is_seen_while_it_is_open(here: ModuleType, home: Path, starts: Starter) -> None:
    assert here.listening(home) == []
    starts(LISTENS, "train", "agent")
    assert here.listening(home) == [29471]


def test_a_start_right_after_a_stop_waits_until_the_unit_has_left(
    here: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the unit does last takes run-wanted away, that of the next run too."""
    wanted, states = home / "config/run-wanted", ["deactivating", "deactivating", "inactive"]

    def leaving(*words: str) -> str:
        assert words == ("show", "-P", "ActiveState", here.UNIT) and not wanted.exists()
        return states.pop(0) + "\n"

    monkeypatch.setattr(here, "unit_of", lambda _: "ours")
    monkeypatch.setattr(run_unit, "systemctl", leaving)
    monkeypatch.setattr(here, "processes", lambda _: {7: {"part": "agent", "how": "unit"}} if wanted.exists() else {})
    assert here.start(home, "r")["pid"] == 7 and not states


def test_a_look_tells_how_it_was_started(here: ModuleType, home: Path, starts: Starter) -> None:
    assert not here.look(home)["on"]
    process = starts(ODDLY_NAMED, "train", "agent")
    told = here.look(home)
    assert told["on"] and told["agent"] == process.pid and told["how"] == "by hand" and told["checkpoint"] == 10
    process.kill()
    process.wait()
    starts(OBEYS, "train", "agent", MOTLEY_STARTED="launch")
    assert here.look(home)["how"] == "detached"
    assert "a run is running already: 'r'\nfix: ./motley stop" in here.start(home, "next")["failed"]


def test_runs_tells_what_is_done_and_how_far_the_others_are(here: ModuleType, home: Path) -> None:
    step = {"event": "step", "time": 5.0, "step": 12, "loss": 3.0}
    logs(home, START, step, torn='{"event": "step", "ti')
    (home / "models/checkpoints/r/step-10/weights").write_bytes(b"x" * 1000)
    (home / "results/done/adapter").mkdir(parents=True)
    (home / "logs/runs/done").mkdir()
    found = here.runs(home)
    assert found["on"] == "" and found["runs"]["done"]["done"] and found["runs"]["done"]["step"] == 0
    known = found["runs"]["r"]
    assert (known["step"], known["steps"], known["loss"], known["bytes"], known["done"]) == (12, 40, 3.0, 1000, False)
    assert known["reward"] is None
    logs(home, START, step | {"rollout": {"reward": 0.25}})
    assert here.runs(home)["runs"]["r"]["reward"] == 0.25


def test_the_start_of_a_long_run_is_known_and_reaches_a_follower_first(
    here: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [{"event": "step", "time": 5.0 + n, "step": n, "loss": 3.0, "pad": "x" * 200} for n in range(1, 3001)]
    logs(home, START, *steps, begins='{"event": "start", "ti\0\0\n')
    known = here.runs(home)["runs"]["r"]
    assert (known["step"], known["steps"]) == (3000, 40)
    shown: list[tuple[str, bytes]] = []
    monkeypatch.setattr(here, "say", lambda *words: shown.append(words))
    monkeypatch.setattr(here, "processes", lambda _: sys.exit())
    with pytest.raises(SystemExit):
        here.report(home, "r")
    assert json.loads(shown[0][1]) == START and json.loads(shown[-1][1]) == steps[-1] and 100 < len(shown) < 2000


def test_the_memory_of_an_agent_stays_on_its_node(here: ModuleType, home: Path) -> None:
    for name in ("epoch.json", "members.jsonl"):
        (home / "logs/runs/r" / name).write_text("")
    assert list(here.hashes(home, "r")["files"]) == ["logs/runs/r/members.jsonl"]


def test_a_run_between_two_starts_of_its_unit_is_on_for_every_verb(here: ModuleType, home: Path) -> None:
    (home / "config/run-wanted").touch()
    (home / "models/checkpoints/r/step-4").mkdir(parents=True, exist_ok=True)
    assert here.runs(home)["on"] == "r" and here.clean(home, ["r"])["freed"] == {}
    assert here.stop(home)["was_on"] and here.runs(home)["on"] == ""


def test_clean_takes_the_named_checkpoints_alone_and_never_those_of_a_run_that_is_on(
    here: ModuleType, home: Path, starts: Starter
) -> None:
    for run in ("old", "kept"):
        (home / "models/checkpoints" / run).mkdir()
    (home / "results/old/adapter").mkdir(parents=True)
    starts(OBEYS, "train", "agent")
    assert set(here.clean(home, ["old", "r", "..", "../base", "unknown"])["freed"]) == {"old"}
    assert sorted(path.name for path in (home / "models/checkpoints").iterdir()) == ["kept", "r"]
    assert (home / "results/old/adapter").is_dir()


def test_where_there_is_no_home_yet_its_disk_is_not_full(here: ModuleType, tmp_path: Path) -> None:
    assert here.look(tmp_path / "none")["free_bytes"] is None


def test_a_look_has_what_the_newest_steps_took(here: ModuleType, home: Path) -> None:
    steps = [{"event": "step", "time": float(number), "step": number, "step_s": number / 10} for number in range(50)]
    logs(home, *steps)
    (home / "logs/runs/r/agent.json").write_text("{}")
    told = here.look(home)
    assert told["step"]["step"] == 49 and told["took_s"] == [step["step_s"] for step in steps[-30:]]


def test_a_look_has_the_newest_pieces(here: ModuleType, home: Path) -> None:
    done = [{"event": "piece", "time": float(number), "step": number, "step_s": 9.0} for number in range(50)]
    logs(home, *done)
    (home / "logs/runs/r/agent.json").write_text("{}")
    told = here.look(home)
    assert told["step"] == done[-1] and told["events"] == done[-30:] and told["took_s"] == []


def test_a_frozen_agent_view_does_not_make_a_node_seem_on(here: ModuleType, home: Path) -> None:
    """What counts is a process, not a file that a power cut left."""
    view = {"state": "training", "time": time.time(), "pid": 1}
    (home / "logs/runs/r/agent.json").write_text(json.dumps(view))
    (home / "logs/runs/r/members.jsonl").write_text("")
    told = here.look(home)
    assert told["run"] == "r" and not told["on"] and told["now"]["state"] == "training"


def test_what_is_sent_needs_nothing_of_ours_on_the_node(home: Path) -> None:
    with program(Node.brings, Node.answers_by) as sent:
        ask = [sys.executable, "-IS", "-", "runs", json.dumps({"home": str(home)})]
        done = subprocess.run(ask, stdin=sent, cwd=home, capture_output=True, text=True, check=False)
    mark, answer = done.stdout.splitlines()
    assert mark == MARK and json.loads(answer)["runs"]["r"]["step"] == 10, done.stderr


def test_the_last_words_stay_until_the_reader_has_waited_long_enough(
    here: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a run for ended once nothing is left for three seconds, and then wants them in what it has just read."""
    (home / here.OUT).write_text("torch is missing\n")
    monkeypatch.setattr(here, "unit_of", lambda _: "none")
    views = reported.views(lambda: here.report(home, "r"), here, 6)
    late = [view for at_s, view in views if at_s >= GONE_S]
    assert late and all(view.get("words") == "torch is missing" for view in late)
    assert "words" not in views[0][1], "a run that is just being started has none yet"


def test_workers_get_as_long_to_save_as_their_agent_says_that_they_need(
    here: ModuleType, home: Path, starts: Starter
) -> None:
    """A large adapter and its moments, on a machine whose agent has no time to say how it is meanwhile."""
    (home / "logs/runs/r/agent.json").write_text(json.dumps({"saves_s": 4.0}))
    os.utime(home / "logs/runs/r/agent.json", (1, 1))
    agent, worker = starts(KEEPS, "train", "agent", os.devnull, "1.5"), starts(OBEYS, "train", "run")
    worker.terminate()
    told = here.stop(home)
    assert pace.ended(agent, 5) == 143 and told["forced"] == 0 and told["seconds"] > 1.2
