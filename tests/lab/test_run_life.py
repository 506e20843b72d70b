"""A run's life as its owner sees it, by the verbs of make, on three machines: one short run, then one long one through
everything that happens at home. What the agents decide is judged in test_membership.py; here it is what a person reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pexpect
import pytest

from lab import faults
from lab import lab as labs
from lab.profile import USER
from tests.support.bootstrap import Person
from tests.support.watching import Watching

MASTER, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
HOME = f"/home/{USER}/ai-cluster"
SAVE_EVERY = 10
PATIENCE = float(os.environ.get("MOTLEY_TEST_PATIENCE", "3"))
LOST_S, BACK_S = 15 * PATIENCE, 20 * PATIENCE
QUICK = ("model=tiny", "rows_per_step=24", "max_seq_length=64", f"save_every={SAVE_EVERY}")
AFTER = r"at step \d+ after (\d+) s · (no|\d+) steps? repeated"
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
    return [word for variable in (*QUICK, *variables) for word in ("-e", variable)]


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    ready_trio.bootstraps(phase="run")
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    yield ready_trio
    ready_trio.types("stop")


def says(person: Person, *words: str) -> str:
    said = person.types(*words)
    assert said.rc == 0, said.out
    return said.out


def step_of(person: Person) -> int:
    found = re.search(r"step (\d+)/", person.types("status").out)
    return int(found[1]) if found else 0


def test_a_run_from_its_launch_to_an_adapter_while_others_want_to_begin(person: Person) -> None:
    """The second launch waits, and is given up; the third waits, begins, and is left."""
    short = Watching(person, "launch", *asked("run=short", "max_steps=80"))
    short.hears("started on 3 of 3 nodes within", 120)
    long = ["launch", *asked("run=long", "max_steps=50000", "queue=true", "motley_plan_queue_s=2")]
    impatient = person.sits_at(*long)
    impatient.expect("'short' is on: waiting for its end", timeout=60)
    impatient.sendintr()
    impatient.expect("stopped: nothing was started or changed", timeout=20)
    impatient.expect(pexpect.EOF, timeout=20)
    impatient.close()
    assert impatient.exitstatus == 130
    patient = person.sits_at(*long)
    patient.expect("'short' is on: waiting for its end", timeout=60)
    short.hears(r"done · 80 steps · loss \d", 90 * PATIENCE)
    assert short.ends(20) == 0
    patient.expect("started on 3 of 3 nodes within", timeout=120)
    patient.expect(r"\r\x1b\[2Kstep \d+/50000  loss \d", timeout=60 * PATIENCE)  # one line, in place
    patient.sendintr()
    words = r"detached; the run goes on. +follow: make follow +status: make status +stop: make stop"
    patient.expect(words, timeout=20)
    patient.expect(pexpect.EOF, timeout=20)
    patient.close()
    assert patient.exitstatus == 0
    before = step_of(person)
    labs.wait_until(lambda: step_of(person) > before, "the run does not go on", 20 * PATIENCE)


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


def test_a_worker_without_power_and_a_controller_that_dies(person: Person) -> None:
    old = person.cluster[OLD]
    following = Watching(person, "follow")
    following.hears(r"step \d+/50000", BACK_S)
    faults.inject(person.cluster.lab, old, "power-cut")
    following.hears(rf"⚡ {OLD} lost at step \d+ · ", LOST_S)
    again = following.hears(
        r"✓ training again with 2 of 3 at step \d+ after (\d+) s · (no|\d+) steps? repeated", LOST_S
    )
    assert repeated(again[2]) <= SAVE_EVERY
    following.kill()
    status = says(person, "status")
    assert re.search(rf"  {OLD}  nobody answers at .+; lost at step \d+\n", status), status
    assert status.count("  training  ") == 2 and "run long  step " in status
    assert re.search(rf"  last: \d\d:\d\d:\d\d  lost  .*{OLD}", status), status
    runs = says(person, "runs")
    assert re.search(r"long .* on .*gpu-master, gpu-worker-1\n", runs) and re.search(r"short .* done ", runs), runs
    assert f"{OLD}  nobody answers" in runs
    logs = says(person, "logs", "--no-follow", "--lines", "200")
    assert re.search(rf"(?m)^{MASTER} +{MASTER}: lost +lost {OLD}", logs) and f"{OLD}  nobody answers" in logs, logs
    faults.mend(person.cluster.lab, old, "power-cut")
    fresh = Watching(person, "follow")
    back = fresh.hears(rf"✓ {OLD} back · 3 of 3 {AFTER}", BACK_S)
    fresh.kill()
    print(f"worker: again after {again[1]} s, back after {back[1]} s, repeated {again[2]}, {back[2]}")


def repeated(word: str) -> int:
    return 0 if word == "no" else int(word)


def test_the_head_without_its_cable(person: Person) -> None:
    """Who reads from the head goes on reading from another node."""
    head = person.cluster[MASTER]
    following = Watching(person, "follow")
    following.hears(r"step \d+/50000", BACK_S)
    faults.inject(person.cluster.lab, head, "cable-pull")
    following.hears(rf"⚡ {MASTER} lost at step \d+ · ", LOST_S)
    again = following.hears(
        r"✓ training again with 2 of 3 at step \d+ after (\d+) s · (no|\d+) steps? repeated", LOST_S
    )
    faults.mend(person.cluster.lab, head, "cable-pull")
    back = following.hears(rf"✓ {MASTER} back · 3 of 3 {AFTER}", BACK_S)
    following.kill()
    assert repeated(again[2]) <= SAVE_EVERY and repeated(back[2]) <= SAVE_EVERY
    print(f"head: again after {again[1]} s, back after {back[1]} s, repeated {again[2]}, {back[2]}")


def test_a_laptop_that_sleeps_and_wakes(person: Person) -> None:
    laptop = person.cluster[LAPTOP]
    following = Watching(person, "follow")
    following.hears(r"step \d+/50000", BACK_S)
    faults.inject(person.cluster.lab, laptop, "suspend")
    following.hears(rf"⚡ {LAPTOP} lost at step \d+ · ", LOST_S)
    again = following.hears(
        r"✓ training again with 2 of 3 at step \d+ after (\d+) s · (no|\d+) steps? repeated", LOST_S
    )
    faults.mend(person.cluster.lab, laptop, "suspend")
    back = following.hears(rf"✓ {LAPTOP} back · 3 of 3 {AFTER}", BACK_S)
    following.kill()
    assert repeated(again[2]) <= SAVE_EVERY and repeated(back[2]) <= SAVE_EVERY
    print(f"laptop: again after {again[1]} s, back after {back[1]} s, repeated {again[2]}, {back[2]}")


def test_a_node_that_throttles_gets_less(person: Person) -> None:
    old = person.cluster[OLD]
    following = Watching(person, "follow")
    following.hears(r"step \d+/50000", BACK_S)
    following.hears(r"step \d+/50000", BACK_S)  # so long that the usual shares are known
    faults.inject(person.cluster.lab, old, "cpu-throttle", {"percent": 12.0})
    following.hears(rf"shares at step \d+: .*{OLD} \d+ → [0-4]\b", 40 * PATIENCE)
    faults.mend(person.cluster.lab, old, "cpu-throttle")
    following.kill()


def test_another_launch_is_refused_by_the_name_of_the_run(person: Person) -> None:
    refused = person.types("launch", *asked("run=other", "max_steps=50000"))
    assert refused.rc == 2 and f"'long' is on, on {MASTER}, {LAPTOP}, {OLD}\nfix: make stop" in refused.out, refused.out


def test_a_full_disk_is_told_and_costs_that_nodes_checkpoints_alone(person: Person) -> None:
    old = person.cluster[OLD]
    faults.inject(person.cluster.lab, old, "disk-full")
    before = step_of(person)
    labs.wait_until(lambda: step_of(person) > before + 2 * SAVE_EVERY, "the run does not go on", 40 * PATIENCE)
    status = says(person, "status")
    kept = {name: int(step) for name, step in re.findall(r"  (\S+) +\w+ .*checkpoint (\d+)", status)}
    assert kept[MASTER] == kept[LAPTOP] > before and kept[OLD] < before + SAVE_EVERY, status
    assert re.search(rf"  {OLD} .* only 0 MB free", status), status
    faults.mend(person.cluster.lab, old, "disk-full")


def test_clean_asks_and_deletes_checkpoints_of_what_is_done(person: Person) -> None:
    def kept(run: str) -> int:
        folders = [host.disk.root / HOME.lstrip("/") / "models/checkpoints" / run for host in person.cluster.hosts]
        return sum(folder.exists() for folder in folders)

    for answer, left, words in (("n", 3, "nothing was deleted"), ("y", 0, "MB freed on 3 of 3 nodes")):
        asking = person.sits_at("clean")
        asking.expect(r"  short  step 80  \d+ MB on gpu-master, gpu-worker-1, gpu-worker-2\r\n", timeout=20)
        asking.expect_exact("delete these checkpoints? [y/N] ")
        assert "long" not in asking.before
        asking.sendline(answer)
        asking.expect(words, timeout=20)
        asking.expect(pexpect.EOF)
        assert kept("short") == left and kept("long") == 3
    assert "there is nothing to clean" in says(person, "clean")
    assert all((host.disk.root / HOME.lstrip("/") / "results/short").exists() for host in person.cluster.hosts)
