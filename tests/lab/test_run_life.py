"""A run's life as its owner sees it, by the verbs of make, on three machines: one short run, then one long one through
everything that happens at home. What the agents decide is judged in test_membership.py; here it is what a person reads.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from lab import faults
from lab import lab as labs
from lab.host import Host
from lab.profile import CLUSTER_HOME as HOME
from lab.profile import USER
from tests.support import pace, typed
from tests.support.bootstrap import Person, Said, hint
from tests.support.typed import says
from tests.support.watching import Watching
from train.runlog.tail import read

MASTER, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
SAVE_EVERY = 10
SHORT = 60
"""Steps of the first run: as long as another launch looks and waits meanwhile."""
SLOW_LINK = {"delay_ms": 40.0}
"""A step waits for it: the run lasts through all of this file, and leaves most of the processor to others."""
LAUNCH_S, LOST_S, BACK_S = 120, 45, 60
QUICK = ("model=tiny", "rows_per_step=24", "max_seq_length=64", f"save_every={SAVE_EVERY}")
SAVED_BY_ANY = (0, 1)
"""Steps between what two nodes saved when they were told to end: one may have finished a step that another had not."""
AFTER = r"at step (?P<step>\d+) after (?P<seconds>\d+) s · (?P<repeated>no|\d+) steps? repeated"
AGAIN = rf"✓ training again with 2 of 3 {AFTER}"
LOADS = f"""
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("{HOME}/models/base/tiny")
tokens = torch.arange(40, 72).reshape(1, -1)
before = base(tokens).logits
model = PeftModel.from_pretrained(base, "/home/{USER}/fetched")
parts = [value for name, value in model.state_dict().items() if "lora_B" in name]
assert parts and all(part.abs().sum() > 0 for part in parts)
print("moved by", float((model(tokens).logits - before).abs().max()))
"""


def asked(*variables: str) -> list[str]:
    return typed.variables(*QUICK, *variables)


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    for host in ready_trio.cluster.hosts:
        faults.inject(ready_trio.cluster.lab, host, "delay", SLOW_LINK)
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    yield ready_trio
    ready_trio.types("stop")


def two_train(person: Person) -> bool:
    return says(person, "status").count("  training  ") == 2


def step_of(person: Person) -> int:
    """Of the long run, by the head's own log: a look by the console takes a second from the machines that train."""
    steps = [event["step"] for event in read(event_log_of(person)) if event["event"] == "step"]
    return steps[-1] if steps else 0


def event_log_of(person: Person) -> Path:
    return person.cluster[MASTER].disk.root / f"{HOME}/logs/runs/long/events.jsonl".lstrip("/")


def what_runs(host: Host) -> str:
    """As root sees it: processes of the environment or of its agent, listening ports of runs, the unit, the request."""
    look = (
        "for p in /proc/[0-9]*; do"
        " tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -a 'ai-cluster/env\\|-m train' | grep -av 'for p in'; done;"
        "ss -Hltn 'sport >= :29400 and sport <= :29899';"
        "systemctl is-active --quiet motley-run.service && echo its unit is active;"
        f"ls {HOME}/config/run-wanted 2>/dev/null; true"
    )
    return host.run("bash", "-c", look)


def what_units_said(person: Person) -> str:
    """Of this boot: why a unit does not run, or what it waits for."""
    look = f"ls {HOME}/config; systemctl --no-pager --full status motley-run.path motley-run.service -n 12"
    return "\n".join(f"{host.name}:\n{host.outcome('sh', '-c', look).stdout}" for host in person.cluster.hosts)


def stopped(person: Person, *words: str, on_all: bool = True) -> Said:
    """Within ten seconds on a machine of its own, and nothing of a run is left on any."""
    there = [bool(what_runs(host)) for host in person.cluster.hosts if host.running]
    assert all(there) if on_all else any(there), "there was nothing to stop"
    began = pace.now()
    said = person.types("stop", *words)
    took_s = pace.now() - began
    assert said.rc == 0 and took_s < 30, f"{took_s:.1f} s: {said.out}"
    assert [what_runs(host) for host in person.cluster.hosts if host.running] == [""] * 3
    return said


def test_a_run_from_its_launch_to_an_adapter_while_another_waits_in_the_queue(person: Person) -> None:
    """The second begins by itself, is watched, and is left."""
    short = Watching(person, "launch", *asked("run=short", f"max_steps={SHORT}"))
    short.hears("started on 3 of 3 nodes within", 120)
    waits = says(person, "launch", *asked("run=long", "max_steps=50000", "queue=true"))
    assert "long waits: it begins by itself when short has ended, also without this computer" in waits
    short.hears(rf"done · {SHORT} steps · loss \d", 540)
    assert short.ends(20) == 0
    pace.until(lambda: step_of(person) > 0, LAUNCH_S, "the next does not begin")
    assert "run long  step " in says(person, "status")
    patient = person.sits_at("follow")
    patient.expect(r"\r\x1b\[2Kstep \d+/50000  loss \d", timeout=LAUNCH_S)  # one line, in place
    patient.sendintr()
    follow, status, stop = map(hint, ("follow", "status", "stop"))
    words = rf"detached; the run continues. +follow: {follow} +status: {status} +stop: {stop}"
    patient.expect(words, timeout=20)
    patient.expect(pexpect.EOF, timeout=20)
    patient.close()
    assert patient.exitstatus == 0
    before = step_of(person)
    pace.until(lambda: step_of(person) > before, BACK_S, "the run does not go on")


def test_the_adapter_that_is_fetched_loads_with_plain_peft_and_has_learned(person: Person) -> None:
    results = person.folder / "results"
    said = says(person, "fetch", "--run", "short", "--results", str(results))
    assert f"the same on {MASTER}, {LAPTOP}, {OLD}" in said
    assert (results / "short/receipt.json").exists() and (results / f"short/nodes/{OLD}/events.jsonl").exists()
    head = person.cluster[MASTER]
    inside = head.disk.root / f"home/{USER}/fetched"
    inside.mkdir()
    for file in (results / "short/adapter").iterdir():
        (inside / file.name).write_bytes(file.read_bytes())
    assert "moved by" in head.run("env", "HF_HUB_OFFLINE=1", f"{HOME}/env/bin/python", "-c", LOADS)


def test_what_trains_is_not_asked(person: Person) -> None:
    refused = person.types("ask", "--run", "short", "--question", "Why?")
    assert refused.rc == 1 and "run long is running there and needs the memory\nfix: wait for its end" in refused.out


def follows(person: Person) -> Watching:
    following = Watching(person, "follow")
    following.hears(r"step \d+/50000", BACK_S)
    return following


def goes_on(following: Watching, words: str, within_s: float, what: str) -> int:
    """The step at which all train again."""
    heard = following.hears(words, within_s)
    repeated = 0 if heard["repeated"] == "no" else int(heard["repeated"])
    assert repeated <= SAVE_EVERY
    print(f"{what} after {heard['seconds']} s, {repeated} steps repeated")
    return int(heard["step"])


@contextmanager
def loses(person: Person, name: str, fault: str) -> Iterator[Watching]:
    """Who follows reads that the node is lost, that the others go on, that it is back; nothing saved is repeated."""
    following = follows(person)
    with person.cluster.suffers(name, fault):
        following.hears(rf"⚡ {name} lost at step \d+ · ", LOST_S)
        goes_on(following, AGAIN, LOST_S, f"{fault} of {name}: again")
        yield following
        following = following if following.process.poll() is None else follows(person)
    goes_on(following, rf"✓ {name} back · 3 of 3 {AFTER}", BACK_S, f"{name} back")
    following.kill()


def test_a_worker_without_power_and_a_controller_that_dies(person: Person) -> None:
    with loses(person, OLD, "power-cut") as following:
        following.kill()
        # an agent tells it each second
        pace.until(lambda: two_train(person), 10, lambda: says(person, "status"), every_s=1)
        status = says(person, "status")
        assert re.search(rf"  {OLD}  nobody answers at .+; lost at step \d+\n", status), status
        assert "run long  step " in status
        assert re.search(rf"  last: \d\d:\d\d:\d\d  lost  .*{OLD}", status), status
        runs = says(person, "runs")
        assert re.search(r"long .* running .*gpu-master, gpu-worker-1\n", runs), runs
        assert re.search(r"short .* done ", runs), runs
        assert f"{OLD}  nobody answers" in runs
        logs = says(person, "logs", "--no-follow", "--lines", "200")
        assert re.search(rf"(?m)^{MASTER} +{MASTER}: lost +lost {OLD}", logs) and f"{OLD}  nobody answers" in logs, logs


@pytest.mark.long  # test_a_worker_without_power…, tests/sim
def test_the_head_without_its_cable(person: Person) -> None:
    """Who reads from the head goes on reading from another node."""
    with loses(person, MASTER, "cable-pull"):
        pass


@pytest.mark.long  # test_a_worker_without_power…, tests/sim
def test_a_laptop_that_sleeps_and_wakes(person: Person) -> None:
    with loses(person, LAPTOP, "suspend"):
        pass


@pytest.mark.long  # tests/train/test_exactness.py has the balance
def test_a_node_that_throttles_gets_less(person: Person) -> None:
    following = follows(person)
    following.hears(r"step \d+/50000", BACK_S)  # so long that the usual shares are known
    with person.cluster.suffers(OLD, "cpu-throttle", percent=12.0):
        following.hears(rf"shares at step \d+: .*{OLD} \d+ → [0-4]\b", 120)
    following.kill()


def test_an_undo_waits_until_the_run_is_stopped(person: Person) -> None:
    before = step_of(person)
    refused = person.types("undo", phase="all")
    assert refused.rc == 1 and "run long is running there: nothing was undone, on no machine" in refused.out
    assert re.search(f"{hint('stop')}, then again", refused.out) and not any(refused.changed().values()), refused.out
    for host in person.cluster.hosts:
        assert host.run("systemctl", "is-active", "motley-run.path").strip() == "active"
        assert host.run("readlink", f"{HOME}/code").startswith("code.")
    pace.until(lambda: step_of(person) > before, 120, "the run does not go on")


@pytest.mark.long  # tests/sim
def test_a_full_disk_is_told_and_costs_that_nodes_checkpoints_alone(person: Person) -> None:
    with person.cluster.suffers(OLD, "disk-full"):
        before = step_of(person)
        pace.until(lambda: step_of(person) > before + 3 * SAVE_EVERY, 120, "the run does not go on")
        status = says(person, "status")
    kept = {name: int(step) for name, step in re.findall(r"  (\S+) +\w+ .*checkpoint (\d+)", status)}
    assert min(kept[MASTER], kept[LAPTOP]) > before and kept[OLD] < before + SAVE_EVERY, status
    assert re.search(rf"  {OLD} .* only 0 MB free", status), status


def test_after_a_restart_of_all_the_run_goes_on_by_itself(person: Person) -> None:
    """Each has saved when it is told to end: not a step is repeated, and nobody has to type anything."""
    event_log = event_log_of(person)
    following = follows(person)
    labs.each(person.cluster.hosts, lambda host: faults.inject(person.cluster.lab, host, "reboot") and None)
    rebooted = time.time()

    def goes_on_with_all() -> bool:
        last = json.loads(event_log.read_text().splitlines()[-1])
        return last["event"] == "step" and last["time"] > rebooted and sorted(last["nodes"]) == [MASTER, LAPTOP, OLD]

    pace.until(goes_on_with_all, 2 * BACK_S, lambda: f"they do not train again:\n{what_units_said(person)}")
    events = [json.loads(line) for line in event_log.read_text().splitlines()]
    begun = max(place for place, event in enumerate(events) if event["event"] == "start")
    again = events[begun]["step"]
    trained = max(event["step"] for event in events[:begun] if event["event"] == "step")
    assert again - trained in SAVED_BY_ANY
    # Where it heard of a loss before its own connection was lost, it names the first step that is trained again.
    following.hears(rf"(?:resumes from step {again}|3 of 3 at step (?:{again}|{again + 1}))\b", BACK_S)
    following.kill()


def test_stop_all_leaves_nothing_and_the_run_goes_on_elsewhere(person: Person) -> None:
    says(person, "launch", *asked("run=next", "max_steps=50000", "queue=true"))
    said = stopped(person, "--all")
    assert "taken out of the queue: next" in said.out and says(person, "queue").startswith("0 runs in the queue"), said
    found = re.search(rf"run long stopped at step (\d+) · resume it: {hint('launch --resume long')}\n", said.out)
    kept = [int(step) for step in re.findall(r"checkpoint (\d+) · nothing left", said.out)]
    assert found and len(kept) == 3 and int(found[1]) == max(kept), said.out
    assert all(max(kept) - one in SAVED_BY_ANY for one in kept), said.out
    status = says(person, "status")
    assert f"no run is running; the last was long: stopped at step {found[1]} · resume it" in status, status
    began = pace.now()
    said = person.types(
        *("launch", "-e", "resume=long", "-e", f"nodes={MASTER},{OLD}", "-e", "follow=false"),
        *("-e", "tensorboard=false"),
    )
    print(f"resumed on two within {pace.now() - began:.0f} s")
    assert said.rc == 0 and f"resumes from step {found[1]}\n" in said.out, said.out
    assert f"the first step is proven on 2 of 2 nodes: {MASTER}, {OLD}" in said.out


def test_stop_finds_what_lost_its_files_and_what_was_started_by_hand(person: Person) -> None:
    """Two nodes train on without settings, event log and script; the third has one of its own that nobody launched."""
    for name in (MASTER, OLD):
        gone = [f"{HOME}/{part}" for part in ("config", "scripts", "logs/runs/long")]
        person.cluster[name].run("rm", "-r", *gone)
    laptop = person.cluster[LAPTOP]
    by_hand = Watching.program(person, laptop.inside("su", "-", USER, "-c", f"exec {HOME}/scripts/launch_cluster.sh"))
    pace.until(lambda: "train agent" in what_runs(laptop), BACK_S, "it does not begin")
    begins = rf"  {LAPTOP}  (starting|waiting) .*started by hand"
    pace.until(lambda: re.search(begins, says(person, "status")), BACK_S, lambda: says(person, "status"), every_s=1)
    said = stopped(person)
    assert said.out.count("nothing left") == 3 and "no run was running · " not in said.out, said.out
    assert by_hand.ends(10) == 143


@pytest.mark.long  # tests/unit/console/playbook/test_interrupt.py
def test_a_launch_that_is_broken_off_says_what_is_on_and_leaves_nothing_here(person: Person) -> None:
    """By Ctrl-C or SIGTERM before and while nodes start; the same command then continues."""
    launch = ["launch", *asked("run=broken-off", "max_steps=50000", "follow=false")]
    person.types("stop")
    for role, how in (("distribute", "intr"), ("start", "term")):
        launching = person.sits_at(*launch, "-v")
        launching.expect(rf"TASK \[motley_{role} : ")
        launching.sendintr() if how == "intr" else launching.kill(signal.SIGTERM)
        launching.expect(r"interrupted: (no run was started;|'broken-off' is running on ).*\r\n", timeout=30)
        on = "is running" in launching.after
        launching.expect(pexpect.EOF, timeout=10)
        launching.close()
        assert launching.exitstatus == 130 and person.at_work() == [], role
        assert any(what_runs(host) for host in person.cluster.hosts) == on, launching.after
        if on:
            stopped(person, on_all=False)  # whom it had reached
    assert "the first step is proven on 3 of 3 nodes" in says(person, *launch)
    stopped(person)


def test_what_it_has_learned_can_be_asked_and_taken_elsewhere(person: Person) -> None:
    """By its owner at a terminal, a question at a time; measured; and as a model of its own."""
    asking = person.sits_at("ask", "--run", "short")  # by itself it takes the newest, which was stopped
    asking.expect("each question stands for itself; end: an empty line\r\n")
    asking.expect_exact(f"run short · on {MASTER}\r\n")
    for question in ("What does os.path.join do?", 'it\'s `$HOME` "now"'):
        asking.expect_exact("\r\n? ")
        asking.sendline(question)
        asking.expect(r"\n  before  .*\n  after   ")
    asking.expect_exact("\r\n? ")
    asking.sendline("")
    asking.expect(pexpect.EOF, timeout=20)
    asking.close()
    assert asking.exitstatus == 0
    said = says(person, "eval", "--run", "short")
    before, after = (float(re.search(rf"(?m)^  {name} +([\d.]+) ", said)[1]) for name in ("base", "adapter"))
    assert after < before, said
    assert "exports/short/merged/model.safetensors" in says(person, "export", "--run", "short", "--to", "merged")
    head = person.cluster[MASTER]
    assert "model.safetensors" in head.run("ls", f"{HOME}/exports/short/merged")
    assert says(person, "status").startswith("no run is running")


def test_clean_asks_and_deletes_checkpoints_of_what_is_done(person: Person) -> None:
    def kept(run: str) -> int:
        folders = [host.disk.root / HOME.lstrip("/") / "models/checkpoints" / run for host in person.cluster.hosts]
        return sum(folder.exists() for folder in folders)

    for answer, left, words in (("n", 3, "no checkpoint was deleted"), ("y", 0, "MB freed on 3 of 3 nodes")):
        asking = person.sits_at("clean")
        asking.expect(rf"  short  step {SHORT}  \d+ MB on gpu-master, gpu-worker-1, gpu-worker-2\r\n")
        asking.expect_exact("delete these checkpoints? [y/N] ")
        assert "long" not in asking.before
        asking.sendline(answer)
        asking.expect(words)
        asking.expect(pexpect.EOF)
        assert kept("short") == left and kept("long") == 3
    assert "there is nothing to clean" in says(person, "clean")
    assert all((host.disk.root / HOME.lstrip("/") / "results/short").exists() for host in person.cluster.hosts)


def test_an_undo_takes_the_queue_away(person: Person) -> None:
    """Behind all others here: the run's unit goes with it."""
    queues = [host.disk.root / HOME.lstrip("/") / "config/queue" for host in person.cluster.hosts]
    assert any((queue / "asked.json").exists() for queue in queues), "on two of them a test has removed all of config"
    person.types("undo", phase="run").went_well()
    assert not any(queue.exists() for queue in queues)
