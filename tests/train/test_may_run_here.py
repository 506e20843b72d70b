"""When a node is skipped for its own failures, for how long, and what counts as a sign of life."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support import pace
from tests.train.test_membership import seen_by, status
from train.cluster.agent_files import TrainerProgress
from train.cluster.agent_surroundings import CLOCK, Outside
from train.cluster.heartbeat import Peer
from train.cluster.lost_soon_after_joining import Newcomers
from train.cluster.may_run_here import Fitness, stuck_words
from train.cluster.membership import End, Idle, Propose, decide
from train.cluster.node_status import Generation, RunEnd
from train.cluster.processes import Memory, Process, Processes
from train.cluster.start_workers import Group, Work, WorkersSeen
from train.cluster.timing import TIMING
from train.cluster.worker_failures import Observed, whose


def test_a_card_that_somebody_plays_on_is_tried_again_later_and_later():
    one = Fitness()

    def fails(at: float) -> str:
        return one.failed("out of memory", at, own=True, run_has_trained=True)

    at = 1000.0
    assert [fails(at) for _ in range(3)] == ["fit", "fit", "resting"]
    for pause_s in (*TIMING.again_s, TIMING.again_s[-1]):
        assert one.condition(at) == one.condition(at + pause_s - 1) == "resting"
        at += pause_s
        assert one.condition(at) == "fit" and fails(at) == "resting"
    one.trained()
    assert fails(at) == "fit"


@pytest.mark.parametrize("facts", [{"own": False, "run_has_trained": True}, {"own": True, "run_has_trained": False}])
def test_what_does_not_pass_by_waiting_is_for_good(facts):
    one = Fitness()
    conditions = [one.failed("there is no file x", 0.0, **facts) for _ in range(3)]
    assert conditions[-1] == "unfit" and one.condition(1e9) == "unfit"


def test_while_a_worker_cannot_be_ended_its_node_is_skipped():
    one = Fitness()
    one.stuck = "process 7 cannot be ended"
    assert one.condition(0.0) == "resting"
    one.stuck = ""
    assert one.condition(0.0) == "fit"


def test_the_others_train_without_a_resting_node():
    tired = status("b", condition="resting", cause="out of memory")
    action = decide(seen_by("a", [tired, status("c")], me={"begun": True}))
    assert isinstance(action, Propose) and action.members == ("a", "c")
    action = decide(seen_by("b", [status("a"), status("c")], me={"condition": "resting", "cause": "out of memory"}))
    assert action == Idle("skipped for now: out of memory")
    action = decide(seen_by("a", [tired, status("c", condition="unfit", cause="no driver")]))
    assert action == End(RunEnd(done=False, reason="b: out of memory; c: no driver")), "nobody would train any more"


class Unkillable:
    """As in state D after Xid 79: no signal ends it."""

    pid, returncode, waits = 4242, None, True

    def poll(self):
        return self.returncode

    def waits_in_kernel(self):
        return self.waits

    def send(self, number):
        pass

    def is_stopped(self):
        return False


@pytest.fixture
def progress(tmp_path) -> TrainerProgress:
    return TrainerProgress(tmp_path / "events.jsonl", 0, Outside())


@pytest.fixture
def killed(progress):
    """A group that was killed so many seconds ago, on a machine that is so slow."""

    def made(since_s: float, pace: float = 1.0, *, waits: bool = True) -> Group:
        group = Group(None, [Unkillable()], progress, Outside(processes=SimpleNamespace(pace=lambda: pace)))
        group.processes[0].waits = waits
        group.stop()
        group.kill_at = CLOCK.now() - since_s
        return group

    return made


def test_a_worker_that_outlives_its_sigkill_is_seen_within_seconds(killed):
    assert killed(-1).unkillable == [] and not killed(-1).poll()
    group = killed(3.1)
    assert group.unkillable == [4242]
    group.processes[0].returncode = -9
    assert group.poll() and group.unkillable == []


def test_a_worker_that_takes_long_to_end_on_a_busy_machine_is_not_called_one(killed):
    """It frees its memory, or its turn does not come; and what waits for a disk waits longer beside others."""
    assert killed(14, 5.0).unkillable == []
    assert killed(16, 5.0).unkillable == [4242]
    assert killed(16, 5.0, waits=False).unkillable == []
    assert killed(61, 5.0, waits=False).unkillable == [4242], "the others do not wait for it for ever"


def test_what_is_said_of_it_is_what_is_known():
    assert stuck_words([7], card=True) == (
        "process 7 does not end though it was killed; most often its GPU is gone: look at dmesg there, and reboot"
    )
    assert stuck_words([7, 8], card=False) == (
        "processes 7, 8 do not end though they were killed: look at dmesg there, and reboot if that lasts"
    )


VFORKS = """
import ctypes, platform, signal, time
CLONE_VFORK = 0x4000
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
ctypes.CDLL(None).syscall(number, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
time.sleep(60)
"""
"""Until its child is gone, who has made it waits in the kernel (state D)."""


def test_who_waits_in_the_kernel_is_seen_on_the_process_itself():
    with subprocess.Popen([sys.executable, "-c", VFORKS], start_new_session=True) as waits:
        process = Process(waits, *[Memory("")] * 3)
        try:
            pace.until(process.waits_in_kernel, 20, "it does not count as waiting in the kernel")
        finally:
            process.send(signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as sleeps:
        process = Process(sleeps, *[Memory("")] * 3)
        pace.until(lambda: not process.waits_in_kernel(), 20, "it counts as waiting in the kernel, and sleeps")
        process.send(signal.SIGKILL)
    assert not process.waits_in_kernel(), "it is gone"
    assert Processes().pace() >= 1


def test_loading_is_life_on_the_way_to_the_first_step_but_not_for_ever(progress):
    progress.setup_s = 5.0
    progress.begin()
    began = progress.started
    assert progress.limit_s == 60
    progress.note_loading(began + 300)
    assert progress.since == began + 300 and progress.limit_s == 60
    progress.note_loading(began + TIMING.first_step_s + 1)
    assert progress.since == began + 300, "it loads for ever"
    progress.stepped = True
    progress.note_loading(began + 400)
    assert progress.since == began + 300


@pytest.mark.parametrize(
    ("cpu_s", "read_bytes", "wanted"), [(1.5, 0, True), (0.5, 0, False), (0.0, 5 << 20, True), (0.0, 4096, False)]
)
def test_who_computes_or_reads_is_told_from_who_waits(cpu_s, read_bytes, wanted):
    used, at = iter([(7.0, 100), (7.0 + cpu_s, 100 + read_bytes)]), iter([100.0, 101.0, 102.0])
    outside = Outside(
        clock=SimpleNamespace(now=lambda: next(at)), processes=SimpleNamespace(used_by=lambda _: next(used))
    )
    work = Work()
    assert work.seen([], outside), "nothing is known yet"
    assert work.seen([], outside), "too early to look again"
    assert work.seen([], outside) == wanted


def test_what_a_worker_has_started_counts_as_its_own():
    """A compiler of kernels, say."""
    burns = "import os\nif os.fork():\n    os.wait()\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", burns], start_new_session=True)
    try:
        pace.until(lambda: Processes().used_by({process.pid})[0] > 0.3, 60)
        assert Processes().used_by({1 << 30}) == (0.0, 0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_who_is_lost_soon_after_joining_waits_longer_each_time():
    newcomers = Newcomers()
    newcomers.note(["a"], 90.0)
    for joined, held_s in ((100.0, 4.0), (200.0, 8.0)):
        newcomers.note(["a", "b"], joined)
        newcomers.note(["a"], joined + 5)
        assert not newcomers.welcome({"b": Peer(since=joined + 5)}, joined + 5 + held_s - 0.1)
        assert newcomers.welcome({"b": Peer(since=joined + 5)}, joined + 5 + held_s)
    newcomers.note(["a", "b"], 300.0)
    newcomers.note(["a"], 330.0)
    assert newcomers.welcome({"b": Peer(since=330.0)}, 330.0), "it stayed"
    newcomers.note(["a", "b"], 340.0)
    newcomers.note(["a"], 345.0)
    assert not newcomers.welcome({"b": Peer(since=345.0)}, 348.9), "it is lost soon after joining again"
    assert newcomers.welcome({"b": Peer(since=345.0)}, 349.0)


def test_who_is_back_before_it_was_silent_waits_too():
    """As by a restart within three seconds."""
    newcomers = Newcomers()
    newcomers.note(["a"], 90.0)
    newcomers.note(["a", "b"], 100.0)
    newcomers.note(["a"], 105.0)
    assert not newcomers.welcome({"b": Peer(since=100.0)}, 108.9)
    assert newcomers.welcome({"b": Peer(since=100.0)}, 109.0)


def test_who_was_there_before_this_node_is_no_newcomer():
    """As for an agent that has just come back, and becomes the host because the old one is lost."""
    newcomers = Newcomers()
    newcomers.note(["a", "b", "c"], 100.0)
    newcomers.note(["a", "b"], 105.0)
    assert newcomers.welcome({"c": Peer(since=106.0)}, 106.0)
    newcomers.note(["a", "b", "c"], 107.0)
    newcomers.note(["a", "b"], 112.0)
    assert not newcomers.welcome({"c": Peer(since=112.0)}, 115.9), "now it comes and goes"


@pytest.mark.parametrize(("silent", "wanted"), [(False, "own"), (True, "peer")])
def test_an_abort_is_its_own_nodes_failure_unless_a_member_is_silent(silent, wanted):
    ours = Generation(number=1, host="a", members=("a", "b"))
    process = SimpleNamespace(poll=lambda: -signal.SIGABRT, reported=lambda: b"")
    failure = Group(ours, [process], SimpleNamespace(done=False), Outside()).new_failure()
    seen = Observed(at=1.0, peers={} if silent else {"b": Peer()}, no_agent_s={}, workers=WorkersSeen())
    assert failure and whose(failure, "a", ours, seen) == wanted


def test_a_worker_in_a_long_step_is_told_twice_and_is_not_deaf(progress):
    """Lost and back within one step: nothing has been measured in between."""
    clock = SimpleNamespace(now=lambda: clock.at, at=0.0)
    process = SimpleNamespace(poll=lambda: None, tell=lambda *_: None, has_obeyed=lambda _: False)
    progress.step_s = 20.0
    group = Group(None, [process], progress, Outside(clock=clock))
    for word, at in enumerate((0.0, 10.0)):
        clock.at = at
        group.tell(Generation(number=word, host="a", members=("a",)), lambda _: {})
        progress.step_s = 0.0
    clock.at = 45.0
    assert not group.is_deaf()
    clock.at = 51.0
    assert group.is_deaf()


@pytest.mark.parametrize(("weights", "least_s"), [(10**6, 3.5), (168 * 10**6, 13.0)])
def test_a_worker_has_as_long_to_save_as_its_weights_need(weights, least_s, progress):
    progress.file.write_text(json.dumps({"event": "start", "weights": weights}) + "\n")
    progress.read()
    group = Group(None, [Unkillable()], progress, Outside(), lambda _: True)
    group.stop()
    assert group.kill_at is not None and least_s - 0.1 < group.kill_at - CLOCK.now() < least_s + 1
