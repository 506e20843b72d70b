"""The cluster of folders: the same bootstrap without root, without SSH, and without touching the machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import pace, small_set
from tests.support.folders import only_loopback
from tests.support.webhook import webhook
from train.runlog.secret import secret_of

REPOSITORY = Path(__file__).resolve().parents[2]
WATCHED = ["/etc/hosts", "/etc/hostname", "/etc/machine-id"]
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
PLAIN_DDP = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from parts.net import net


def main():
    dist.init_process_group("gloo")
    rank, steps = dist.get_rank(), int(sys.argv[1])
    torch.manual_seed(0)
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(steps):
        inputs = torch.randn(16, 4)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if "--fail" in sys.argv and rank == 2:
            raise ValueError("broken on purpose")
        if steps > 100:
            time.sleep(0.1)
    weights = sum(part.sum().item() for part in model.parameters())
    print(f"rank {rank} of {dist.get_world_size()}: {weights:.5f}", flush=True)

main()
os._exit(0)  # otherwise torch's threads abort it now and then
"""
pytestmark = pytest.mark.timeout(1800)  # test_demo.py may have the loopback before it
PYTHON = "{}.{}".format(*sys.version_info[:2])


def console(
    *words: str, inventory: Path | str = "inventory/loopback", front: bool = False
) -> subprocess.CompletedProcess[str]:
    """As an ordinary user where the tests run as root. `front`: as a person types it."""
    program = [REPOSITORY / "motley"] if front else [sys.executable, "-m", "console"]
    return pace.run(
        *(*program, *words, "--inventory", str(inventory)),
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("MOTLEY_")},
    )


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The one that is shipped, with a state folder of its own."""
    if reason := small_set.why_not_fetched(PYTHON):
        pytest.skip(f"NOT RUN: {reason}")
    folder = tmp_path_factory.mktemp("loopback") / "inventory"
    shutil.copytree(REPOSITORY / "inventory/loopback", folder)
    hosts = (
        (folder / "hosts.yml")
        .read_text()
        .replace("  hosts:\n", f"  vars: {{motley_state: {folder.parent}}}\n  hosts:\n")
    )
    (folder / "hosts.yml").write_text(hosts)
    with only_loopback():
        yield folder


def home(inventory: Path, node: str) -> Path:
    return inventory.parent / "loopback" / node


@pytest.fixture
def as_before(inventory: Path) -> Iterator[None]:
    """Whatever becomes of the test, its run leaves nothing on the nodes for the tests behind it."""
    nodes = inventory.parent / "loopback"
    found = {*nodes.rglob("*")}
    yield
    for path in sorted({*nodes.rglob("*")} - found, reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_the_inventory_is_good_and_needs_no_login() -> None:
    done = console("check")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:3]] == ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


def test_bootstrap_makes_three_nodes_that_compute_together_and_touches_nothing_else(inventory: Path) -> None:
    before = {path: Path(path).read_bytes() for path in WATCHED}
    done = console("bootstrap", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    for node in NODES:
        said = next(line for line in done.stdout.splitlines() if line.startswith(node))
        assert "left_alone" in said and "all else of the machine stay as they are" in said
        folder = home(inventory, node)
        asked = [folder / "env/bin/python", "-m", "train", "versions", "--json"]
        told = subprocess.run(asked, cwd=folder / "code", capture_output=True, text=True, check=True)
        assert json.loads(told.stdout)["torch"] == "2.13.0+cpu"
        assert (folder / "logs/runs").is_dir() and (folder / "models/checkpoints").is_dir()
    assert "all-reduce 16 MB" in done.stdout and "gloo, 3 nodes" in done.stdout
    assert "password" not in done.stdout
    assert len({(home(inventory, node) / "env").resolve() for node in NODES}) == 1, "one environment for all"
    assert {path: Path(path).read_bytes() for path in WATCHED} == before


@pytest.mark.long  # test_bootstrap.py
def test_a_second_run_changes_nothing(inventory: Path) -> None:
    assert console("bootstrap", inventory=inventory).returncode == 0
    assert "0 changes" in console("bootstrap", "--check", inventory=inventory).stdout
    assert "3 of 3 nodes · 0 changes" in console("bootstrap", inventory=inventory).stdout


def test_its_versions_can_be_checked(inventory: Path) -> None:
    done = console("check-versions", inventory=inventory)
    assert done.returncode == 0 and "all that must agree agrees on 3 nodes" in done.stdout, done.stdout


@pytest.mark.usefixtures("as_before")
@pytest.mark.long  # tests/unit/console/test_launch.py, test_run_commands.py; the launch below
def test_a_run_can_be_read_as_data(inventory: Path) -> None:
    asked = (
        "--model",
        "tiny",
        "--run",
        "read",
        "--steps",
        "3",
        "--set",
        "rows_per_step=6",
        "--set",
        "max_seq_length=64",
    )
    planned = console("plan", "--json", *asked, inventory=inventory, front=True)
    assert planned.returncode == 0 and json.loads(planned.stdout)["run"] == "read", planned.stderr
    done = console("launch", "--json", "--follow", *asked, inventory=inventory, front=True)
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0] == {"event": "started", "run": "read", "nodes": list(NODES)}
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]
    assert events[-1]["event"] == "result" and events[-1]["ok"]
    listed = console("runs", "--json", inventory=inventory, front=True)
    assert json.loads(listed.stdout)["runs"]["read"]["done"]
    pace.until(lambda: "no run is running" in console("status", inventory=inventory).stdout, pace.HANG_S, "no end")
    nothing = console("follow", "--json", inventory=inventory, front=True)
    assert nothing.returncode == 1 and nothing.stdout == "" and "no run is running" in nothing.stderr


@pytest.mark.usefixtures("as_before")
def test_a_launch_says_what_of_the_data_is_left_out_and_the_nodes_tell_its_end(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "notes.jsonl"
    data.write_text('{"prompt": "Who?", "completion": "Mitzi."}\n{"prompt": "Where?", "completion": ""}\n')
    asked = ("--model", "tiny", "--run", "left", "--steps", "1", "--set", "rows_per_step=3", "--dataset", str(data))
    done = console("launch", *asked, "--set", "patience=3", inventory=inventory, front=True)
    assert done.returncode and "patience: 3, but no rows are held out" in done.stderr, done.stdout + done.stderr
    assert not (home(inventory, NODES[0]) / "logs/runs/left").exists(), "it starts nothing in vain"

    planned = console("plan", "--json", *asked, inventory=inventory, front=True)
    assert planned.returncode == 0 and json.loads(planned.stdout)["run"] == "left", planned.stderr

    file = inventory / "group_vars/cluster.yml"
    before = file.read_text() if file.exists() else ""
    request.addfinalizer(lambda: file.write_text(before) if before else file.unlink())
    (tmp_path / "password").write_text("a password for this test\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    lock = [Path(sys.executable).with_name("ansible-vault"), "encrypt_string", "--stdin-name", "motley_notify"]
    with webhook() as server:
        locked = subprocess.run(lock, input=server.address, capture_output=True, text=True, check=True).stdout
        file.write_text(f"{before}\n{locked}")
        tried = console("notify-test", inventory=inventory)
        assert tried.returncode == 0 and all(f"✓ {node}" in tried.stdout for node in NODES), tried.stdout
        server.got.clear()
        done = console("launch", *asked, "--follow", inventory=inventory, front=True)
        assert done.returncode == 0, done.stdout + done.stderr
        lost = "1 of 2 records are skipped, the first: notes.jsonl line 2: the answer is empty"
        assert f"  ⚠ data: {lost}\n  ⚠ data: 0 rows are held out" in done.stdout
        assert "the nodes send them: the address of motley_notify lies on" in done.stdout
        listed = console("runs", "--json", inventory=inventory, front=True)
        assert json.loads(listed.stdout)["runs"]["left"]["done"], listed.stdout + listed.stderr
        pace.until(lambda: server.got, 30)
        assert b"left: done" in server.got[0][2] and len(server.got) == 1
        assert all((home(inventory, node) / "config/secret.json").stat().st_mode & 0o777 == 0o600 for node in NODES)
        file.write_text(before)
        console("clean", inventory=inventory)
        assert not any(secret_of(home(inventory, node) / "config/secret.json").messages for node in NODES)
        assert server.address not in tried.stdout + done.stdout + done.stderr


@pytest.mark.usefixtures("as_before")
def test_any_training_script_runs_over_unequal_nodes(
    inventory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    hosts = inventory / "hosts.yml"
    before = hosts.read_text()
    request.addfinalizer(lambda: hosts.write_text(before))
    hosts.write_text(before.replace("127.0.0.11", "127.0.0.11\n      motley_processes: 2", 1))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/net.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 1)\n")
    script = tmp_path / "ddp.py"
    script.write_text(PLAIN_DDP)
    done = console("torchrun", "--script", f"{script} 5", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 processes on 3 nodes" in done.stdout and "exact resume" in done.stdout
    ends = re.findall(r"(\S+) +(?:\[\d\] )?rank (\d) of 4: (\S+)", done.stdout)
    assert sorted((node, rank) for node, rank, _ in ends) == [*zip([NODES[0], *NODES], "0123", strict=True)]
    assert len({weights for *_, weights in ends}) == 1, "DDP has combined the gradients of all four"
    failed = console("torchrun", "--script", f"{script} 5 --fail", inventory=inventory)
    assert failed.returncode == 1
    assert f"✗ ddp-2 failed on {NODES[1]}: [rank2]: ValueError: broken on purpose" in failed.stdout
    stops_one_that_runs(script, inventory, tmp_path / "out")


def stops_one_that_runs(script: Path, inventory: Path, out: Path) -> None:
    command = [sys.executable, "-m", "console", "torchrun", "--run", "long", "--inventory", str(inventory)]
    with out.open("w") as file, subprocess.Popen([*command, script, "100000"], cwd=REPOSITORY, stdout=file) as process:
        try:
            pace.until(lambda: "step 3 loss" in out.read_text(), pace.HANG_S, out.read_text)
            told = console("status", inventory=inventory).stdout
            assert "script long" in told and "100000" in told and told.count("running") == 3
            second = console("launch", "--model", "tiny", inventory=inventory)
            assert second.returncode == 2 and "'long' is running on gpu-master" in second.stderr + second.stdout
            assert "step 2 loss" in console("logs", "--no-follow", inventory=inventory).stdout
        finally:
            stopped = console("stop", inventory=inventory)
        assert stopped.returncode == 0 and stopped.stdout.startswith("long stopped"), stopped.stdout
        assert pace.ended(process) == 0 and "long was stopped" in out.read_text()
    assert "the last was the script long: stopped" in console("status", inventory=inventory).stdout


def test_undo_takes_the_folders_away_and_keeps_what_a_run_left(inventory: Path) -> None:
    result = home(inventory, NODES[0]) / "results/qa"
    result.mkdir()
    done = console("undo", "--phase", "all", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [str(path.relative_to(inventory.parent)) for path in (inventory.parent / "loopback").rglob("*")] == [
        "loopback/gpu-master",
        "loopback/gpu-master/results",
        "loopback/gpu-master/results/qa",
    ]
    assert "of it, static_ip changed nothing" in console("undo", "--phase", "static_ip", inventory=inventory).stderr
