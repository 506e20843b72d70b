"""A whole evening with the lab's market: rented, proven, trained, fetched, given back; and what goes wrong with the
machine itself. Its hosts are containers without systemd, which know root by a key and answer on a mapped port."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from console import processes
from lab import base, rented
from lab import lab as labs
from lab.lab import Lab
from lab.market import KEY
from lab.place import Place
from lab.profile import CLUSTER_HOME
from tests.support import cluster, pace, small_set

ROOT = Path(__file__).parents[2]
LAB_S = f"""
motley_home: {CLUSTER_HOME}
motley_python_env_sets: [node-cpu]
motley_workspace_disk_gb: 1
motley_render_environment: {{OMP_NUM_THREADS: 1}}
"""
SMALL = "--model tiny --dataset stdlib-qa --set rows_per_step=4 --set max_seq_length=64".split()


@dataclass(frozen=True)
class Renter:
    """Whoever types, at the lab's controller."""

    lab: Lab
    folder: Path
    market: str

    @property
    def environment(self) -> dict[str, str]:
        known = {"MOTLEY_LAB": self.lab.place.name, "MOTLEY_MARKET": self.market, "MOTLEY_RENTED": str(self.state)}
        return os.environ | known | {"CLORE_API_KEY": KEY}

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def inventory(self) -> Path:
        return self.folder / "rented"

    def types(self, verb: str, *words: str | Path) -> CompletedProcess[str]:
        command = ["ip", "netns", "exec", self.lab.place.controller, sys.executable, "-m", "console", verb, *words]
        return pace.run(*map(str, command), cwd=ROOT, env=self.environment)

    def rents(self, hours: str = "1") -> CompletedProcess[str]:
        words = ["--gpu", "RTX 4090", "--hours", hours, "--max", "0.5", "--model", "tiny", "--yes"]
        return self.types("rent", *words, "--inventory", self.inventory)

    def asks(self, name: str, **body: Any) -> dict[str, Any]:
        """The market itself, as no renter sees it."""
        ask = (
            "import sys,urllib.request as u;"
            f"r=u.Request('{self.market}/{name}',None if sys.argv[1]=='{{}}' else sys.argv[1].encode());"
            "print(u.urlopen(r,timeout=5).read().decode())"
        )
        known = ["ip", "netns", "exec", self.lab.place.controller, sys.executable, "-c", ask, json.dumps(body)]
        return dict(json.loads(pace.run(*known).stdout))

    @property
    def bill(self) -> list[dict[str, Any]]:
        return list(self.asks("bill")["orders"])

    def lease(self) -> dict[str, Any]:
        (file,) = self.state.glob("motley-*.json")
        return dict(json.loads(file.read_text()))


@pytest.fixture
def renter(lab_allowed: None, tmp_path: Path) -> Iterator[Renter]:
    yield from market_of(tmp_path, "train")


@pytest.fixture
def renter_of_bare_machines(lab_allowed: None, tmp_path: Path) -> Iterator[Renter]:
    yield from market_of(tmp_path)


def market_of(tmp_path: Path, *layers: str) -> Iterator[Renter]:
    place = Place(name=f"t{os.getpid()}")
    try:
        lab = cluster.up(place, rented.PROFILE, base.default_suite(), layers, [rented.SHAPE])
        shutil.copytree(ROOT / "inventory/rented", tmp_path / "rented")
        variables = tmp_path / "rented/group_vars/cluster.yml"
        variables.write_text(variables.read_text() + LAB_S)
        yield Renter(lab, tmp_path, rented.open_market(lab))
    finally:
        processes.end(f"MOTLEY_RENTED={tmp_path / 'state'}")
        labs.down(place)


@pytest.mark.long
def test_a_whole_evening(renter: Renter) -> None:
    """Rented, proven, trained on, fetched, given back: one order, one bill, and the adapter is at home."""
    done = renter.rents()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out  server 7" in done.stdout
    assert "rented-1000  proven" in done.stdout
    shutil.rmtree(ROOT / "results/rent-test", ignore_errors=True)
    launched = renter.types(
        "launch",
        "--inventory",
        renter.inventory,
        "--nodes",
        "rented-1000",
        "--run",
        "rent-test",
        "--steps",
        "4",
        *SMALL,
    )
    assert launched.returncode == 0, launched.stdout + launched.stderr
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


def test_a_machine_that_cannot_be_proven_goes_back_at_once(renter: Renter) -> None:
    variables = renter.inventory / "group_vars/cluster.yml"
    variables.write_text(variables.read_text().replace(LAB_S, "\nmotley_workspace_disk_gb: 9000\n"))
    done = renter.rents()
    assert done.returncode == 1
    assert "was not proven" in done.stderr
    assert [order["status"] for order in renter.bill] == ["terminated"]


@pytest.mark.long
def test_when_its_time_is_over_the_machine_ends_the_run_and_the_watcher_gives_it_back(renter: Renter) -> None:
    """Nobody types anything any more after the launch: 0.1 hours are six minutes."""
    assert renter.rents("0.1").returncode == 0
    words = ["--nodes", "rented-1000", "--run", "rent-long", "--steps", "100000", *SMALL, "--set", "follow=false"]
    launched = renter.types("launch", "--inventory", renter.inventory, *words)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    pace.until(lambda: not list(renter.state.glob("motley-*.json")), 400, "the watcher closes the lease")
    assert "run rent-long has ended and is fetched" in (renter.state / "watcher.log").read_text()
    (kept,) = (ROOT / "results/rent-long/checkpoint").glob("step-*")
    assert (kept / "adapter_model.safetensors").is_file(), "what it can be resumed from is at home"
    shutil.rmtree(ROOT / "results/rent-long")
    assert renter.bill[0]["usd"] <= (0.1 * 3600 + 25) * 0.38 * 1.05 / 3600


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
    variables.write_text(variables.read_text() + LAB_S)
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
        done = pace.run(*command, sys.executable, "-m", "console", *map(str, words), cwd=ROOT, env=renter.environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "elsewhere" in done.stdout


@pytest.mark.long
def test_a_machine_fetches_its_wheels_itself_and_none_that_differs_from_the_lock(
    renter_of_bare_machines: Renter, tmp_path: Path
) -> None:
    """From an index in the lab; what comes from home is uv and the training package."""
    renter = renter_of_bare_machines
    if reason := small_set.why_no_cpu_set("3.11"):
        pytest.skip(f"NOT RUN: {reason}")
    kept = json.loads(pace.run(sys.executable, "requirements/wheelhouse.py", "3.11", "node-cpu", cwd=ROOT).stdout)
    index = tmp_path / "wheels"
    shutil.copytree(kept["folder"], index, copy_function=os.link)
    (renter.lab.place.root / "repositories/wheels").symlink_to(index)
    where = f'["--no-index", "--find-links=http://{renter.lab.profile.gateway}/wheels/"]'
    variables = renter.inventory / "group_vars/cluster.yml"
    own = LAB_S.replace(f"motley_home: {CLUSTER_HOME}\n", "")
    variables.write_text(variables.read_text().replace(LAB_S, f"{own}motley_python_env_index: {where}\n"))
    spoiled = next(index.glob("peft-*.whl"))
    spoiled.unlink()
    shutil.copyfile(next(index.glob("regex-*.whl")), spoiled)
    refused = renter.rents()
    assert refused.returncode == 1
    assert "could not be fetched by the machine itself" in (renter.state / "bootstrap.log").read_text()
    assert [order["status"] for order in renter.bill] == ["terminated"]
    spoiled.unlink()
    shutil.copyfile(Path(kept["folder"]) / spoiled.name, spoiled)
    done = renter.rents()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"GET /wheels/{spoiled.name}" in (renter.lab.place.root / "repository.log").read_text()
