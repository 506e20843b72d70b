"""A whole evening with the lab's market: rented, proven, trained, fetched, given back; and what goes wrong with the
machine itself. Its hosts are containers without systemd, which know root by a key and answer on a mapped port."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from lab import hub as hubs
from lab import rented
from lab.demo_rent import ON_LAB_HOSTS
from lab.market import KEY
from lab.profile import CLUSTER_HOME
from tests.support import ROOT, pace, small_set
from tests.support.renter import Renter, market_of
from tests.support.secrets import traces

LLAMA, TOKEN = "meta-llama/Llama-2-7b-hf", "hf_" + "TokenThatStaysHere"
SMALL = "--model tiny --dataset stdlib-qa --set rows_per_step=4 --set max_seq_length=64".split()


@pytest.fixture
def renter(lab_allowed: None, tmp_path: Path) -> Iterator[Renter]:
    yield from market_of(tmp_path, "train")


@pytest.fixture
def renter_of_bare_machines(lab_allowed: None, tmp_path: Path) -> Iterator[Renter]:
    yield from market_of(tmp_path)


def test_a_whole_evening(renter: Renter) -> None:
    """Rented, proven, trained on, fetched, given back: one order, one bill, and the adapter is at home."""
    done = pace.went_well(renter.rents())
    assert "left out  server 7" in done.stdout
    assert "rented-1000  proven" in done.stdout
    shutil.rmtree(ROOT / "results/rent-test", ignore_errors=True)
    words = ["--nodes", "rented-1000", "--run", "rent-test", "--steps", "4", *SMALL]
    pace.went_well(renter.types("launch", "--inventory", renter.inventory, *words))
    pace.until(lambda: renter.bill[0]["status"] == "terminated", 60, "the machine is given back")
    assert (ROOT / "results/rent-test/adapter/adapter_model.safetensors").is_file()
    shutil.rmtree(ROOT / "results/rent-test")
    (bill,) = renter.bill
    shown = renter.types("rented").stdout
    assert "nothing is rented" in shown
    assert "run rent-test has ended and is fetched" in shown
    (receipt,) = [json.loads(file.read_text()) for file in (renter.state / "bills").glob("*.json")]
    assert bill["usd"] <= receipt["usd_at_most"] + 0.001
    assert not renter.lab.host("server-6").running, "a machine that is given back is gone"
    secrets = [file for file in renter.state.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert secrets == []


@pytest.mark.long
def test_nothing_of_home_goes_there_and_a_watcher_brings_back_what_nobody_uses(renter: Renter) -> None:
    assert renter.rents().returncode == 0
    host = renter.lab.host("server-6")
    own = renter.lease()["host"]
    known = host.run("sh", "-c", f"cat /etc/hosts /root/.ssh/* 2>/dev/null; ls {CLUSTER_HOME}")
    assert "gpu-master" not in known
    assert known.count("ssh-ed25519") == 1
    assert own == host.spec.installed_address
    renter.asks("outbid", id=1000)
    pace.until(lambda: not list(renter.state.glob("motley-*.json")), 120, "the watcher closes the lease")
    assert "the market has ended it" in renter.types("rented").stdout


@pytest.mark.long
def test_when_its_time_is_over_the_machine_ends_the_run_and_the_watcher_gives_it_back(renter: Renter) -> None:
    """Nobody types anything any more after the launch: 0.1 hours are six minutes."""
    assert renter.rents("0.1").returncode == 0
    words = ["--nodes", "rented-1000", "--run", "rent-long", "--steps", "100000", *SMALL, "--set", "follow=false"]
    pace.went_well(renter.types("launch", "--inventory", renter.inventory, *words))
    pace.until(lambda: not list(renter.state.glob("motley-*.json")), 400, "the watcher closes the lease")
    assert "run rent-long has ended and is fetched" in (renter.state / "watcher.log").read_text()
    (kept,) = (ROOT / "results/rent-long/checkpoint").glob("step-*")
    assert (kept / "adapter_model.safetensors").is_file(), "what it can be resumed from is at home"
    shutil.rmtree(ROOT / "results/rent-long")
    assert renter.bill[0]["usd"] <= (0.1 * 3600 + 25) * 0.38 * 1.05 / 3600


@pytest.mark.long
def test_any_machine_with_ssh_is_three_lines_of_inventory(renter: Renter, monkeypatch: pytest.MonkeyPatch) -> None:
    """inventory/elsewhere with an address of the lab's, for a machine that no market of ours knows."""
    folder = renter.folder / "elsewhere"
    shutil.copytree(ROOT / "inventory/elsewhere", folder)
    host = renter.lab.host("server-6")
    hosts, variables = folder / "hosts.yml", folder / "group_vars/cluster.yml"
    own = renter.folder / "own"
    assert "203.0.113.5" in hosts.read_text()
    text = hosts.read_text().replace("203.0.113.5", host.spec.installed_address)
    hosts.write_text(text.replace("ansible_user: root", f"ansible_user: root, motley_state: {own}"))
    variables.write_text(variables.read_text() + ON_LAB_HOSTS)
    own.mkdir()
    pace.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own / "controller_ed25519"))
    order = {"machine": host.name, "ssh_key": (own / "controller_ed25519.pub").read_text().strip()}
    monkeypatch.setenv("MOTLEY_LAB", renter.lab.place.name)
    assert rented.main("order", order) == 0
    environment = {"MOTLEY_ACCEPT_KEYS": "yes", "MOTLEY_PASSWORD": ""}
    command = ["ip", "netns", "exec", renter.lab.place.controller, "env", *(f"{k}={v}" for k, v in environment.items())]
    for words in (
        ["bootstrap", "--inventory", folder],
        ["launch", "--inventory", folder, "--run", "elsewhere", "--steps", "2", *SMALL],
        ["status", "--inventory", folder],
    ):
        done = pace.does(*command, sys.executable, "-m", "console", *map(str, words), cwd=ROOT, env=renter.environment)
    assert "elsewhere" in done.stdout


@pytest.mark.long
def test_a_machine_fetches_its_wheels_itself_and_none_that_differs_from_the_lock(
    renter_of_bare_machines: Renter, tmp_path: Path
) -> None:
    """From an index in the lab; what comes from home is uv and the training package."""
    renter = renter_of_bare_machines
    if reason := small_set.why_not_fetched("3.11"):
        pytest.skip(f"NOT RUN: {reason}")
    kept = json.loads(pace.run(sys.executable, "requirements/wheelhouse.py", "3.11", "node-cpu", cwd=ROOT).stdout)
    index = tmp_path / "wheels"
    shutil.copytree(kept["folder"], index, copy_function=os.link)
    (renter.lab.place.root / "repositories/wheels").symlink_to(index)
    where = f'["--no-index", "--find-links=http://{renter.lab.profile.gateway}/wheels/"]'
    variables = renter.inventory / "group_vars/cluster.yml"
    own = ON_LAB_HOSTS.replace(f"motley_home: {CLUSTER_HOME}\n", "")
    variables.write_text(variables.read_text().replace(ON_LAB_HOSTS, f"{own}motley_python_env_index: {where}\n"))
    spoiled = next(index.glob("peft-*.whl"))
    spoiled.unlink()
    shutil.copyfile(next(index.glob("regex-*.whl")), spoiled)
    refused = renter.rents()
    assert refused.returncode == 1
    assert "could not be fetched by the machine itself" in (renter.state / "bootstrap.log").read_text()
    assert [order["status"] for order in renter.bill] == ["terminated"]
    spoiled.unlink()
    shutil.copyfile(Path(kept["folder"]) / spoiled.name, spoiled)
    pace.went_well(renter.rents())
    assert f"GET /wheels/{spoiled.name}" in (renter.lab.place.root / "repository.log").read_text()


@pytest.mark.long
def test_a_machine_fetches_a_public_model_itself_and_a_gated_one_after_asking(
    renter: Renter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab's hub serves what the machine has built as the smallest model, as if it were Llama 2."""
    assert renter.rents().returncode == 0
    host = renter.lab.host("server-6")
    models = host.disk.root / f"{CLUSTER_HOME.lstrip('/')}/models/base"
    there = models / "llama2-7b"
    brought = ["--inventory", renter.inventory, "--nodes", "rented-1000", *SMALL[2:], "--set", "motley_start_now=false"]
    assert renter.types("launch", *brought, "--model", "tiny").returncode == 0
    kept = tmp_path / "hub"
    shutil.copytree(models / "tiny", kept / LLAMA, ignore=shutil.ignore_patterns(".*"))
    hub = hubs.start(renter.lab.place, kept, address=renter.lab.profile.controller)
    weights = hashlib.sha256((kept / LLAMA / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    own = host.spec.installed_address

    def fetched() -> None:
        assert hashlib.sha256((there / "model.safetensors").read_bytes()).hexdigest() == weights
        shutil.rmtree(there)

    size, words = (
        (kept / LLAMA / "model.safetensors").stat().st_size,
        [*brought, "--model", "llama2-7b", "--dataset", "stdlib-qa"],
    )
    hub.behave(damage={"model.safetensors": 1})
    assert "rented-1000 fetches it from the hub itself" in renter.types("launch", *words).stdout
    fetched()
    assert hub.bytes_sent("model.safetensors", to=own) == 2 * size, "what arrived damaged is fetched again"
    assert not any(entry["token"] for entry in hub.requests() if entry["from"] == own)

    hub.behave(gated=[LLAMA], token=TOKEN)
    assert "itself" not in renter.types("launch", *words).stdout
    fetched()
    assert hub.bytes_sent("model.safetensors", to=own) == 0, "nobody said that the token may go there"

    hub.behave(gated=[LLAMA], token=TOKEN)
    screen = renter.sits_at("launch", *words)
    screen.expect_exact(f"{LLAMA} is gated. With your token rented-1000 can fetch it by itself")
    screen.expect_exact("May the token go there? [y/N]")
    screen.sendline("y")
    screen.expect_exact("rented-1000 fetches it from the hub itself")
    screen.expect_exact(pexpect.EOF)
    fetched()
    assert hub.bytes_sent("model.safetensors", to=own) == size
    assert traces([host], TOKEN, renter.folder) == [f"{kept}/behaviour.json"], "the token is in no log and no file"


@pytest.mark.long
def test_a_script_of_ones_own_ends_and_gives_back_as_a_launch_does(renter: Renter, tmp_path: Path) -> None:
    assert renter.rents().returncode == 0
    script = tmp_path / "own.py"
    script.write_text("import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
    words = ["--run", "rent-own", "--nodes", "rented-1000", "--inventory", renter.inventory, script]
    done = pace.went_well(renter.types("torchrun", *words))
    assert "rank 0 of 1" in done.stdout
    assert "run rent-own has ended and is fetched to results/rent-own" in done.stdout
    assert [order["status"] for order in renter.bill] == ["terminated"]
    shutil.rmtree(ROOT / "results/rent-own")
