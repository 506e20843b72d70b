"""What an agent reads of its files when their content is odd, as after a failing disk or by another version."""

import json
import resource
import stat
from typing import Any

import pytest

from train.cluster.agent_files import AgentMemory, MemberLog, TrainerProgress
from train.cluster.agent_surroundings import Disk, Outside
from train.cluster.notice_ledger import Ledger

STEP = {"event": "step", "step": 3, "step_s": 0.5, "loss": 2.0}
KNOWN: dict[str, Any] = {"number": 3, "members": ["a"], "lost": [], "sent": ["done"]}


@pytest.mark.parametrize(
    "odd",
    [
        {"event": "start"},
        {"event": "start", "weights": None},
        {"event": "step", "step": 3},
        {"event": "step", "step": None, "step_s": 1},
        {"event": "step", "step": 1e999, "step_s": 1},
        {"event": "eval", "step": "x"},
        {"event": "checkpoint", "step": 1},
    ],
)
def test_an_odd_event_is_passed_over_and_the_next_one_counts(tmp_path, odd):
    file = tmp_path / "events.jsonl"
    progress = TrainerProgress(file, 1.0, Outside())
    progress.begin()
    file.write_text(f"{json.dumps(odd)}\n{json.dumps(STEP)}\n")
    progress.read()
    assert (progress.step, progress.best_step, progress.loss, progress.stepped) == (3, 3, 2.0, True)


@pytest.mark.parametrize(
    "odd",
    [
        {},  # as an older version wrote it
        {"epoch": 1e999},
        {"notices": None},
        {"notices": KNOWN | {"sent": [1]}},
        {"notices": KNOWN | {"sent": ["waiting-x"]}},
        {"notices": KNOWN | {"sent": 1}},
        {"verdict": "done"},
    ],
)
def test_an_odd_memory_is_one_that_lacks_something_and_continues_its_launch(tmp_path, odd):
    file = tmp_path / "epoch.json"
    file.write_text(json.dumps({"token": "t", "epoch": 3, "begun": True, "verdict": None, "notices": KNOWN} | odd))
    memory = AgentMemory.load(file, "t", Outside())
    assert (memory.number, memory.begun) == ((0, False) if "epoch" in odd else (3, True))
    assert not AgentMemory.load(file, "another", Outside()).begun
    assert "done" in memory.ledger.merged(Ledger(number=4, sent=("done",))).sent


def test_a_memory_knows_its_launch_and_gives_its_token_to_nobody(tmp_path):
    file, token = tmp_path / "epoch.json", "5f" * 16
    memory = AgentMemory.load(file, token, Outside())
    memory.number, memory.begun = 3, True
    memory.save()
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert AgentMemory.load(file, token, Outside()).begun
    assert not AgentMemory.load(file, "another", Outside()).begun


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(tmp_path, monkeypatch):
    log = MemberLog(tmp_path, "a", Outside(say=lambda _: None))

    def write(reason):
        log.write("waiting", number=1, step=0, host="", nodes=[], reason=reason)

    with monkeypatch.context() as full:

        def refuses(*_):
            raise OSError(28, "No space left on device")

        full.setattr(Disk, "append", refuses)
        write("one")
        write("two")
    write("three")
    lines = (tmp_path / "members.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["one", "two", "three"]


def test_a_disk_that_is_full_in_the_middle_of_a_line_gets_no_line_twice(tmp_path):
    file, disk = tmp_path / "members.jsonl", Disk()
    disk.append(file, "one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            disk.append(file, "two\nthree\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == "one\n"
    disk.append(file, "two\nthree\n")
    assert file.read_text() == "one\ntwo\nthree\n"
