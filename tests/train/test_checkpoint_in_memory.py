"""A worker that leaves is gone within seconds, however slow the disk: its last checkpoint waits in main memory."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.pids import is_alive
from tests.train.agents import ENDLESS, Agents
from train.engine import checkpoint, checkpoint_in_memory
from train.engine.checkpoint_in_memory import Staging


def checkpoint_in(folder: Path, text: str = "weights") -> Path:
    made = folder / "step-7"
    made.mkdir(parents=True)
    (made / "state.json").write_text(text)
    return made


def until_kept(stage: Staging) -> None:
    pace.until(stage.is_kept, 20, every_s=0.01)


@pytest.fixture
def stage(tmp_path) -> Staging:
    root = tmp_path / "checkpoints"
    root.mkdir()
    return Staging(root, "node-0", memory=tmp_path)


def test_what_was_left_there_is_kept_also_from_an_agent_that_was_killed(stage, tmp_path):
    checkpoint_in(Path(stage.open()))
    again = Staging(stage.root, "node-0", memory=tmp_path)
    assert again.folder == stage.folder != Staging(stage.root, "node-1", memory=tmp_path).folder
    until_kept(again)
    assert (stage.root / "step-7/state.json").read_text() == "weights"
    assert checkpoint.damage(stage.root / "step-7") == "", "its agent has hashed it"
    assert not list(Path(stage.folder).iterdir())
    again.close()
    assert not stage.folder.exists()


def test_the_same_step_made_again_replaces_the_old(stage):
    checkpoint_in(stage.root, "old")
    checkpoint_in(Path(stage.open()), "new")
    until_kept(stage)
    assert (stage.root / "step-7/state.json").read_text() == "new"


def test_what_cannot_be_kept_leaves_nothing_half_done(stage, monkeypatch, capsys):
    checkpoint_in(Path(stage.open()))
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(shutil, "copytree", lambda *_, **__: (_ for _ in ()).throw(full))
    until_kept(stage)
    assert list(stage.root.iterdir()) == [] and "step-7 could not be kept" in capsys.readouterr().out


def test_what_the_disk_makes_of_it_is_noticed(stage, monkeypatch):
    """The hash is of what the worker has written, not of what came to lie on the disk."""
    checkpoint_in(Path(stage.open()))
    copied = shutil.copytree

    def torn(source: Path, target: Path, **how: object) -> None:
        copied(source, target, **how)
        (target / "state.json").write_text("weight")

    monkeypatch.setattr(shutil, "copytree", torn)
    until_kept(stage)
    assert checkpoint.damage(stage.root / "step-7") == "state.json is not what was written"


def test_a_folder_of_somebody_else_is_not_used(stage, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stage.folder.symlink_to(elsewhere)
    assert stage.open() == ""


def test_without_room_in_memory_it_goes_to_the_disk(monkeypatch, tmp_path):
    monkeypatch.delenv(checkpoint_in_memory.VARIABLE, raising=False)
    assert checkpoint_in_memory.room_for(1) is None
    monkeypatch.setenv(checkpoint_in_memory.VARIABLE, str(tmp_path))
    assert checkpoint_in_memory.room_for(1) == tmp_path
    assert checkpoint_in_memory.room_for(1 << 60) is None
    own = Staging(tmp_path / "root", "node-0", memory=tmp_path)
    assert own.has_room(1) and not own.has_room(1 << 60), "its agent goes by the same rule"


@pytest.fixture
def agents(data, tmp_path) -> Agents:
    """One, whose worker saves only where it leaves."""
    return Agents(tmp_path, ENDLESS | {"dataset": data, "save_every": 100000}, size=1)


def test_a_worker_that_saves_many_weights_is_not_killed_meanwhile(agents):
    """A small one's has 3.5 s; and stop is told how long this one may take."""
    agents.start(program="tests/train/broken.py slow_save=4")
    agents.together("node-0", step=8)
    pace.until(lambda: agents.now("node-0")["saves_s"] > 10, 5, "its agent does not say how long it needs")
    agents.signal("node-0", signal.SIGTERM)
    assert pace.ended(agents.running["node-0"]) == 143
    step = agents.last_step("node-0")["step"]
    assert checkpoint.steps(agents.checkpoints("node-0"))[-1] >= step - 1


def test_a_node_that_is_stopped_on_a_slow_disk_loses_no_step(agents):
    """Its worker is gone by the time that its disk takes the checkpoint."""
    agents.start(altered="held_disk")
    agents.together("node-0", step=8)
    (worker,) = agents.workers("node-0")
    agents.signal("node-0", signal.SIGTERM)
    pace.until(lambda: not is_alive(worker), 5, "it holds its GPU", every_s=0.02)
    assert agents.running["node-0"].poll() is None, "the checkpoint was not waited for"
    root = agents.checkpoints("node-0")
    (root / "go").touch()
    assert pace.ended(agents.running["node-0"]) == 143
    steps = checkpoint.steps(root)
    assert steps and steps[-1] >= agents.last_step("node-0")["step"] - 1
    last = [event for event in agents.events("node-0") if event["event"] in ("checkpoint", "stopped")]
    assert [event["event"] for event in last] == ["checkpoint", "stopped"] and last[0]["staged"]
    assert checkpoint.damage(root / f"step-{steps[-1]}") == ""
    assert not Staging(root, "node-0").folder.exists(), "it is still in main memory"
