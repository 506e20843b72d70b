"""Agents with real workers on loopback addresses: how a run begins and ends, and which faults end it."""

import contextlib
import socket
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from tests.support import pace
from tests.train import reference
from tests.train.agents import ENDLESS, Agents
from train.engine import checkpoint
from train.models.model_files import model_folder


@contextlib.contextmanager
def stranger(agents):
    """He reaches the store's port, lists its keys, and writes beside and over ours what would end the run for all."""
    written, over = set(), threading.Event()

    def writes() -> None:
        while not over.is_set():
            for port in range(agents.port + 1, agents.port + 6):
                with contextlib.suppress(OSError, RuntimeError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    store = dist.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=1), wait_for_workers=False)
                    places = {key.partition("motley/")[0] for key in store.list_keys() if "motley/" in key}
                    for place in places | {""}:
                        store.set(f"{place}motley/failed", "f" * 64 + "a stranger says so")  # as long as ours
                    written.update(places)
            time.sleep(0.01)

    thread = threading.Thread(target=writes)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert written, "he never came in time"


def test_a_stranger_who_writes_into_the_store_ends_no_run_and_it_ends_well_on_all_nodes(data, tmp_path):
    """2 + 1 + 1 processes."""
    options = ENDLESS | {"dataset": data, "max_steps": 20, "learning_rate": 2e-3, "lora_r": 8, "grad_clip": 0.3}
    agents = Agents(tmp_path, options, processes={0: 2})
    with stranger(agents):
        agents.start()
        assert agents.ended() == [0, 0, 0]
    truth = reference.losses(model_folder("tiny"), data, steps=20, rows_per_step=4)
    for name in agents.names:
        losses = [event["loss"] for event in agents.steps(name)]
        assert reference.largest_error(losses, truth) < 5e-6
        assert (agents.result(name) / "adapter_model.safetensors").exists()
        assert agents.now(name)["state"] == "done"
        assert agents.members(name)[-1]["event"] == "ended"
        assert "a stranger says so" not in agents.said(name)


def test_an_agent_that_fails_itself_saves_and_has_not_ended_the_run(data, tmp_path):
    """Its code is the one after which the unit starts it again, also where the failure looks like bad input."""
    agents = Agents(tmp_path, ENDLESS | {"dataset": data, "max_steps": 40}, size=1)
    agents.start(altered="failing_agent=5")
    assert agents.ended() == [70]
    assert "Traceback" in agents.said("node-0") and not agents.members("node-0", "ended")
    assert agents.members("node-0", "failed")[-1]["reason"] == "its agent: no port is free"
    assert checkpoint.steps(agents.checkpoints("node-0"))[-1] >= 5
    agents.start()
    assert agents.ended() == [0]
    assert [event["step"] for event in agents.steps("node-0")] == list(range(1, 41))


@pytest.mark.long  # tests/unit/train/test_safe_stdio.py
def test_words_that_a_full_disk_does_not_take_end_nothing(data, tmp_path):
    """Of the agents and of their workers; one is lost and comes back, so there is something to say."""
    agents = Agents(tmp_path, ENDLESS | {"dataset": data, "max_steps": 60})
    agents.start(out_to="/dev/full")
    agents.together(*agents.names)
    agents.kill("node-2")
    agents.start("node-2", out_to="/dev/full")
    assert agents.ended() == [0, 0, 0]
    assert all(agents.result(name).is_dir() for name in agents.names)


@pytest.mark.parametrize(("full", "codes"), [(["node-1"], [0, 0]), (["node-0", "node-1"], [1, 1])])
def test_who_has_no_room_for_the_adapter_says_so(data, tmp_path, full, codes):
    """With one node that has it, the run is done; with none it has failed, for a cause that names the fix."""
    agents = Agents(tmp_path, ENDLESS | {"dataset": data, "max_steps": 6}, size=2)
    for name in agents.names:
        agents.start(name, program="tests/train/broken.py full_at_the_end" if name in full else "-m train")
    assert agents.ended() == codes
    for name in full:
        reason = agents.members(name, "ended")[-1]["reason"]
        if len(full) == 1:
            assert "this node has no result of its own, the others have" in reason
        else:
            # the run ends at the first one's word, before or after this one has found out about its own
            assert any(f"{other}: its disk is full (" in reason for other in full), reason
            assert "./motley launch --resume run" in reason


def test_a_node_whose_worker_aborts_is_left_out_and_named(data, tmp_path):
    """No member is silent: it is its own card, and nobody else's loss."""
    agents = Agents(tmp_path, ENDLESS | {"dataset": data})
    agents.start("node-0", "node-1")
    agents.start("node-2", program="tests/train/broken.py aborts")
    agents.together("node-0", "node-1", within_s=90)
    agents.wait(lambda: agents.members("node-2", "unfit"), 60, "it is tried again and again")
    assert "SIGABRT" in agents.members("node-2", "unfit")[-1]["reason"]
    agents.together("node-0", "node-1", within_s=20)
    assert all(event["whose"] == "own" for event in agents.members("node-2", "failed"))
    agents.stop()


@pytest.mark.long  # tests/sim
def test_who_is_only_slow_is_waited_for(data, tmp_path):
    """Both agents hear each other: how long an exchange waits says nothing."""
    two = Agents(tmp_path, ENDLESS | {"dataset": data, "timeout_s": 6}, size=2)
    two.start(program="tests/train/broken.py slow_to_begin=13")
    two.together(*two.names, within_s=90)
    assert not [event for name in two.names for event in two.members(name, "failed")]
    two.stop()


def test_bad_input_ends_the_run_everywhere_with_its_cause(data, tmp_path):
    agents = Agents(tmp_path, ENDLESS | {"dataset": data}, size=2)
    agents.start("node-0")
    agents.options["dataset"] = tmp_path / "nowhere"
    agents.start("node-1")
    assert agents.ended(60) == [1, 1]
    for name in agents.names:
        assert "node-1: " in agents.members(name)[-1]["reason"] and "nowhere" in agents.members(name)[-1]["reason"]
    agents.start("node-0")  # and whoever comes later to the same launch is told so at once
    assert pace.ended(agents.running["node-0"], 10) == 1


def test_a_nan_loss_is_not_tried_again(data, tmp_path):
    agents = Agents(tmp_path, ENDLESS | {"dataset": data}, size=2)
    agents.start(program="tests/train/broken.py nan_loss=6")
    assert agents.ended(60) == [1, 1]
    assert all("the loss is nan" in agents.members(name)[-1]["reason"] for name in agents.names)
    assert len(agents.members("node-0", "plan")) == 1


def test_resume_never_counts_once(data, tmp_path):
    """The old run is set aside when the launch begins; after a crash of everything it continues, not again."""
    agents = Agents(tmp_path, ENDLESS | {"dataset": data, "save_every": 5}, size=1)
    agents.start()
    agents.together("node-0", step=12)
    agents.kill()
    agents.token, agents.options["resume"] = "another launch", "never"
    began = time.time()
    agents.start()
    agents.together("node-0", since=began, step=12)
    agents.kill()
    agents.start()
    agents.together("node-0", step=24)
    agents.stop()
    starts = [event["step"] for event in agents.events("node-0", "start")]
    assert starts[:2] == [0, 0] and starts[2] >= 10
