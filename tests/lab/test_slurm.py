"""A run as a job of a real Slurm: unequal machines of a cluster that is somebody else's, reached by its login node."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator

import pytest

from tests.support import pace
from tests.support.slurm_site import HOME, Account, has_environment, opened
from tests.support.torchrun import quotas
from tests.support.watching import Watching

HEAD, TWO_CARDS, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
EXACT = 1e-6
GENTLE = "learning_rate=2e-4"  # for long runs: at 2e-3 a last bit grows to 3e-5 in 500 steps
BACK_S = 15
AGAIN = r"✓ training again with 2 of 3 at step \d+ after (\d+) s · (no|\d+) steps? repeated"


@pytest.fixture(scope="module")
def account(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    yield from opened(tmp_path_factory.mktemp("slurm"), "train", "slurm")


def test_it_is_a_slurm_that_gives_each_node_the_cards_it_has(account: Account) -> None:
    """With the slurm.conf of ./motley slurm-conf: one, two and one of four cards, each node knows its own."""
    said = account.slurm(*"srun -N3 --gpus=4 sh -c".split(), "echo $(hostname) $SLURM_GPUS_ON_NODE")
    assert sorted(said.splitlines()) == [f"{HEAD} 1", f"{TWO_CARDS} 2", f"{OLD} 1"]
    assert f"{TWO_CARDS} gpu:rtx4070:2" in account.slurm("sinfo", "-hN", "-o", "%N %G")


@pytest.mark.long  # the first launch on Slurm needs it
def test_what_one_host_writes_to_the_shared_folder_the_others_read(account: Account) -> None:
    account.slurm("sh", "-c", "echo hello >/srv/shared/user/note")
    assert account.person.cluster[OLD].run("cat", "/srv/shared/user/note") == "hello\n"


def test_a_wrong_option_is_told_before_anything_is_brought_there(account: Account) -> None:
    has_environment(account)
    wrong = account.launches("wrong", options="slurm_options=--nodes=3 --partition=gpuu")
    wrong.hears(r"Slurm takes no such job: .*[Ii]nvalid partition", 60)
    wrong.hears(r"where: slurm_options: .*--partition=gpuu", 5)
    wrong.hears("fix: sinfo shows what there is", 5)
    assert wrong.ends(20) != 0
    assert [path.name for path in account.shared.iterdir()] == ["env"]
    own = account.launches("wrong", options="slurm_options=--output=mine")
    own.hears("slurm_options: --output is the launch's own", 60)
    assert own.ends(20) != 0
    short = account.launches("wrong", options="slurm_options=--nodes=3 --time=1")
    short.hears("the job's time leaves none to train", 60)
    short.hears("fix: --time=4 or more", 5)
    assert short.ends(20) != 0


@pytest.mark.long
def test_a_run_goes_on_through_a_requeue_and_the_loss_of_a_node(account: Account) -> None:
    """What Slurm does at the end of a job's time is done at once: a signal to its batch script, and the queue again."""
    has_environment(account)
    run = account.launches("first", "max_steps=150", "save_every=40")
    run.hears(f"slurm     3 of partition home: {HEAD}, {TWO_CARDS}, {OLD}; it would begin at", 60)
    run.hears(r"step \d+/150 .*gpu-worker-1 \d", 120)
    account.slurm("scancel", "--batch", "--signal=USR1", account.job("first"))
    run.hears(r"resumes from step [1-9]", 120)
    run.hears(r"step \d+/150", 60)
    account.cable(OLD, plugged=False)
    again = run.hears(AGAIN, 60)
    account.cable(OLD, plugged=True)
    assert int(again[1]) <= pace.seconds(BACK_S)
    assert account.restarts("first") == 1
    run.hears(r"done · 150 steps · loss \d", 150)
    assert run.ends(20) == 0
    proof = account.proof("first")
    assert (proof["steps"], proof["whole"], proof["rows"]) == (150, True, True), proof
    assert proof["error"] <= EXACT, proof
    assert max(proof["worlds"]) == 4, "one process for each card: 1 + 2 + 1"


@pytest.mark.long
def test_a_second_job_waits_and_scancel_from_outside_leaves_a_checkpoint(account: Account) -> None:
    account.idle()
    account.slurm("sbatch", "--nodes=3", "--exclusive", "--job-name=somebody", "--output=/dev/null", "--wrap=sleep 900")
    run = account.launches("second", "max_steps=5000", "save_every=1000", "dataset=examples/household.jsonl")
    run.hears(r"waiting: job \d+ is pending: \w+", 60)
    assert "is pending" in account.person.types("status").out
    account.slurm("scancel", "--name=somebody")
    run.hears(r"step \d+/5000", 120)
    account.slurm("scancel", account.job("second"))
    assert run.ends(90) == 0, run.said[-2000:]
    found = re.search(r"stopped at step (\d+) · resume it: ", run.said)
    assert found, run.said[-2000:]
    newest = [steps[-1] for steps in account.saved("second") if steps]
    assert newest, "no place has a checkpoint"
    assert max(newest) >= int(found[1])
    account.idle()


@pytest.mark.long
def test_what_it_has_made_is_used_from_where_one_sits(account: Account) -> None:
    """After the two above."""
    person = account.person
    status = person.types("status")
    assert "no run is running" in status.out
    runs = person.types("runs").out
    assert re.search(r"first +150/150 .* done", runs), runs
    assert re.search(r"second +\d+/5000 .* stopped", runs), runs
    fetched = person.types("fetch", "--run", "first", "--results", str(person.folder / "results")).went_well()
    assert "adapter  the same on place-0, place-1, place-2" in re.sub(r"/\S+/adapter", "adapter", fetched.out)
    results = person.folder / "results/first"
    assert sorted(path.name for path in (results / "nodes").iterdir()) == ["place-0", "place-1", "place-2"]
    (results / "report.html").unlink(missing_ok=True)
    words = ("console", "report", "--run", "first", "--results", results.parent)
    pace.went_well(person.cluster.controller(sys.executable, "-m", *words))
    assert "150" in (results / "report.html").read_text()
    asked = person.types("ask", "--run", "first", "--question", "What does len do?", "--tokens", "5").went_well()
    assert "before" in asked.out
    assert "after" in asked.out
    exported = person.types("export", "--run", "first", "--to", "merged").went_well()
    assert [*(account.shared / "jobs/first").glob("place-*/exports/first/merged/*.safetensors")], exported.out
    said = person.types("logs", "--no-follow")
    assert "the agents left with" in said.out, said.out
    assert "no run was running" in person.types("stop").out


@pytest.mark.long
def test_a_time_limit_that_is_shorter_than_the_run(account: Account) -> None:
    """Slurm itself sends the signal; three minutes are the least that a launch takes."""
    has_environment(account)
    account.idle()
    # The signal may come a minute early, and a slow machine is still starting then: the limit leaves room for that.
    limit = min(6, 2 + math.ceil(pace.seconds(60) / 60))
    options = f"slurm_options=--nodes=3 --gpus=4 --time={limit} --signal=B:USR1@20"
    run = account.launches("short", "max_steps=1500", GENTLE, options=options)
    run.hears(r"step \d+/1500", 120)
    hosts = account.person.cluster.hosts
    quotas(hosts, on=True, percent=dict.fromkeys([host.name for host in hosts], 15))  # a fast one would be done
    pace.until(lambda: account.restarts("short"), 60 * limit + 60, lambda: account.about("short"))
    quotas(hosts, on=False)
    run.hears(r"resumes from step [1-9]", 120)
    run.hears(r"done · 1500 steps", 900)
    assert run.ends(20) == 0
    proof = account.proof("short")
    assert (proof["steps"], proof["whole"], proof["rows"]) == (1500, True, True), proof
    assert proof["error"] <= EXACT, proof


@pytest.mark.long
def test_a_job_that_no_start_brings_further_ends_with_that_reason(account: Account) -> None:
    """Submitted by hand, with a time in which it only starts: no plan refuses that."""
    has_environment(account)
    account.idle()
    run = account.launches("vain", "max_steps=5000")
    run.hears(r"step \d+/5000", 120)
    account.person.types("stop")
    assert run.ends(60) == 0
    account.slurm("sbatch", "--time=1", f"{HOME}/scripts/launch_cluster.sbatch")
    account.begun.append(follow := Watching(account.person, "follow"))
    follow.hears(r"waiting: job \d+ is pending: BeginTime", 120)
    follow.hears(r"run vain failed: three starts after one another made no new step \(saved: step [1-9]", 300)
    follow.hears("fix: a longer --time", 5)
    assert follow.ends(20) != 0
    account.idle()


@pytest.mark.long
def test_a_node_that_slurm_gives_up_is_no_reason_for_a_requeue(account: Account) -> None:
    has_environment(account)
    account.idle()
    run = account.launches("lost", "max_steps=3000")
    run.hears(r"step \d+/3000 .*gpu-worker-1 \d", 120)
    account.cable(OLD, plugged=False)
    run.hears(AGAIN, 60)
    down = ["sinfo", "-hN", "-t", "down", "-o", "%N"]
    pace.until(lambda: OLD in account.slurm(*down), 120, lambda: account.slurm("sinfo", "-N"))
    step = int(run.hears(r"step (\d+)/3000", 60)[1])
    assert int(run.hears(r"step (\d+)/3000", 60)[1]) > step
    assert account.restarts("lost") == 0
    account.cable(OLD, plugged=True)
    stopped = account.person.types("stop")
    assert re.search(r"run lost stopped at step \d+ · resume it", stopped.out), stopped.out
    assert run.ends(60) == 0
    account.idle()


@pytest.mark.long
def test_a_job_whose_first_node_is_lost_is_queued_again(account: Account) -> None:
    """Its script ran there, and the one that is left is no majority: it has the job queued again, which goes on from
    the checkpoints as soon as there are nodes for it."""
    has_environment(account)
    account.idle()
    options = f"--nodes=2 --gpus=3 --exclude={HEAD}"
    run = account.plays("headless", "max_steps=1200", "save_every=20", GENTLE, options=options)
    run.hears(r"step \d+/1200 .*gpu-worker-1 \d", 120)
    pace.until(lambda: any(account.saved("headless")), 120, lambda: run.said[-2000:])
    first = account.person.cluster[TWO_CARDS]
    first.power_cut()  # without its cable it would still write to the lab's shared disk
    pace.until(lambda: account.restarts("headless"), 240, lambda: account.about("headless"))
    run.hears(r"waiting: job \d+ is pending", 60)
    first.boot()
    first.run("systemctl", "restart", "slurmd")
    run.hears(r"resumes from step [1-9]", 300)
    run.hears(r"done · 1200 steps", 600)
    assert run.ends(20) == 0
    proof = account.proof("headless")
    assert (proof["steps"], proof["whole"], proof["rows"]) == (1200, True, True), proof
    assert proof["error"] <= EXACT, proof


@pytest.mark.long
def test_a_sweep_is_one_job_with_a_run_for_each_value(account: Account) -> None:
    has_environment(account)
    account.idle()
    sweep = account.launches("tries", "max_steps=20", "sweep=seed=1,2", options="slurm_options=--nodes=1 --gpus=1")
    sweep.hears(r"sweep     tries-1: seed 1", 60)
    sweep.hears(r"sweep     tries-2: seed 2", 5)
    assert sweep.ends(120) == 0, sweep.said[-2000:]
    assert account.job("tries-1") == account.job("tries-2")
    account.idle()
    runs = account.person.types("runs").out
    losses = re.findall(r"tries-(\d) +20/20 +([\d.]+)  done .* seed=(\d)", runs)
    assert {(run, seed) for run, _, seed in losses} == {("1", "1"), ("2", "2")}, runs
    assert len({loss for _, loss, _ in losses}) == 2, "other seeds, other losses"
