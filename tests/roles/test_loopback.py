"""The demo as an ordinary user meets it: three folders, no root. Then these folders by hand, as a cluster of one's own:
launch, any script, stop, fetch, undo; the machine itself stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, pace, small_set
from tests.support.webhook import webhook
from train.runlog.secret import secret_of

CACHE = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley")
NOBODY = 65534
# A namespace in which it is nobody: no right of root is left, and what root owns, such as the environment, can be read.
# One for all that the visitor does: from another one, the processes of an earlier command could not be looked at.
DROP = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--"]
ENTER = ["nsenter", "--preserve-credentials", "--user"]
PYTHON = "{}.{}".format(*sys.version_info[:2])
ON_FOLDERS = ["--inventory", "inventory/loopback"]
LOCK = Path(tempfile.gettempdir()) / "motley-loopback.lock"
"""The nodes of inventory/loopback have the same ports in every copy of it: one copy at a time."""
WATCHED = [Path("/etc") / name for name in ("hosts", "hostname", "machine-id")]
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
        if steps > 100:
            time.sleep(0.1)
    weights = sum(part.sum().item() for part in model.parameters())
    print(f"rank {rank} of {dist.get_world_size()}: {weights:.5f}", flush=True)

main()
os._exit(0)  # otherwise torch's threads abort it now and then
"""

pytestmark = pytest.mark.timeout(1800)  # another checkout may have the loopback before it


class Visitor:
    """Somebody with a copy of the project and no rights; root itself where there are no such namespaces."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "motley"
        dropped = os.geteuid() == 0 and subprocess.run([*DROP, "true"], check=False).returncode == 0
        self.nobody = subprocess.Popen([*DROP, "sleep", "infinity"]) if dropped else None
        self.drop = [*ENTER, f"--target={self.nobody.pid}", "--"] if self.nobody else []
        self.options = [] if self.drop or os.geteuid() else ["FOLDERS=1"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOTLEY_", "MAKE", "MFLAGS"))}
        self.env = kept | {"HOME": str(home), "MOTLEY_CACHE": str(home / "cache")}

    def node(self, name: str) -> Path:
        return self.folder / ".motley/loopback" / name

    def start(self, *words: str | Path, stderr: int = subprocess.STDOUT, **settings: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.drop, *words],
            cwd=self.folder,
            env=self.env | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def runs(self, *words: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **settings)
        try:
            out, err = pace.said_by(process, 900)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def types(self, verb: str, *words: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
        return self.runs("./motley", verb, *ON_FOLDERS, *words, **settings)

    def leave(self) -> None:
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.nobody:
            self.nobody.kill()
            self.nobody.wait()
        subprocess.run(["rm", "-rf", self.home], check=True)

    def left_running(self) -> list[str]:
        return list(self.running().values())

    def running(self) -> dict[int, str]:
        """Processes whose environment or folder is this copy."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                where = (folder / "environ").read_bytes() + bytes((folder / "cwd").readlink())
                if str(self.folder).encode() in where and int(folder.name) != os.getpid():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def visitor() -> Iterator[Visitor]:
    if reason := small_set.why_not_fetched(PYTHON):
        pytest.skip(f"NOT RUN: {reason}")
    home = Path(tempfile.mkdtemp(prefix="motley-visitor-"))
    there = Visitor(home)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (there.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, there.folder / name, follow_symlinks=False)
    (there.folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    (home / "cache").mkdir()
    (CACHE / "wheels").mkdir(parents=True, exist_ok=True)
    (home / "cache/wheels").symlink_to(CACHE / "wheels")
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield there
        there.leave()


@pytest.mark.long  # lab/test_demo.py
def test_ctrl_c_leaves_nothing_running(visitor: Visitor) -> None:
    process = visitor.start("make", "demo", "DEMO_FAST=1", *visitor.options)
    assert process.stdout
    said = []
    for line in process.stdout:
        said.append(line)
        if "machines " in line and "gpu-worker-2 ✓" in line:
            break
    plays = lambda: any("ansible-playbook" in words for words in visitor.left_running())  # noqa: E731
    pace.until(plays, pace.HANG_S, "it plays nothing")
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = pace.said_by(process, 60)
    assert process.returncode != 0 and "nothing of it is left running. Again: ./motley demo" in rest, (
        "".join(said) + rest
    )
    assert visitor.left_running() == []


@pytest.fixture(scope="module")
def done(visitor: Visitor) -> subprocess.CompletedProcess[str]:
    before = [path.read_bytes() for path in WATCHED]
    done = visitor.runs("make", "demo", "DEMO_FAST=1", *visitor.options)
    assert [path.read_bytes() for path in WATCHED] == before
    return done


def test_the_demo_comes_to_its_end_and_says_what_it_left_out(
    visitor: Visitor, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0, done.stdout
    assert "three folders of this machine instead of three machines" in done.stdout
    assert "Left out: names, keys" in done.stdout and "sudo ./motley demo" in done.stdout
    assert "⚡ gpu-worker-1 lost at step" in done.stdout and "✓ gpu-worker-1 back · 3 of 3" in done.stdout
    assert done.stdout.count("⚡ gpu-worker-1 lost") == 1, "each thing is told once"
    assert re.search(r"⚡ the demo now kills .*⚡ gpu-worker-1 lost.*⚡ the demo now starts .*back", done.stdout, re.S)
    end = [line.split()[0] for line in done.stdout.rpartition("\n\n")[2].splitlines() if not line.startswith(" ")]
    assert end == ["done", "loss", "survived", "balanced", "adapter", "report", "stays", "next"], end
    assert json.loads((visitor.folder / "results/demo/adapter/adapter_config.json").read_text())["r"] == 16
    assert "42 of 42 steps on 3 machines" in (visitor.folder / "results/demo/report.html").read_text()
    assert visitor.left_running() == []


@pytest.mark.usefixtures("done")
def test_its_bootstrap_made_three_nodes_that_compute_together(visitor: Visitor) -> None:
    said = (visitor.folder / ".motley/demo/bootstrap.log").read_text()
    for node in map(visitor.node, NODES):
        line = next(line for line in said.splitlines() if line.startswith(node.name))
        assert "left_alone" in line and "all else of the machine stay as they are" in line
        asked = [node / "env/bin/python", "-m", "train", "versions", "--json"]
        told = subprocess.run(asked, cwd=node / "code", capture_output=True, text=True, check=True)
        assert json.loads(told.stdout)["torch"] == "2.13.0+cpu"
        assert (node / "logs/runs").is_dir() and (node / "models/checkpoints").is_dir()
    assert "all-reduce 16 MB" in said and "gloo, 3 nodes" in said
    assert "password" not in said
    assert len({(visitor.node(name) / "env").resolve() for name in NODES}) == 1, "one environment for all"


@pytest.mark.long  # test_python_env.py
@pytest.mark.usefixtures("done")
def test_its_versions_can_be_checked(visitor: Visitor) -> None:
    checked = visitor.types("check-versions")
    assert checked.returncode == 0 and "all that must agree agrees on 3 nodes" in checked.stdout, checked.stdout


@pytest.mark.long
@pytest.mark.usefixtures("done")
def test_its_folders_go_on_by_hand(visitor: Visitor) -> None:
    told = "SET=max_steps=4000 rows_per_step=6 max_seq_length=32 follow=false save_every=10"
    here = "INVENTORY=inventory/loopback"
    pace.went_well(visitor.runs("make", "launch", here, "MODEL=tiny", "DATASET=stdlib-qa", "RUN=mine", told))
    status = visitor.types("status").stdout
    assert "run mine" in status and status.count("checkpoint") == 3, status
    stopped = visitor.types("stop")
    assert stopped.returncode == 0 and stopped.stdout.count("nothing left") == 3, stopped.stdout
    assert visitor.left_running() == []
    fetched = visitor.types("fetch", "--run", "mine")
    assert fetched.returncode == 0 and "none yet: the run is not done" in fetched.stdout, fetched.stdout
    assert visitor.runs("make", "report", "RUN=mine").returncode == 0
    assert "stopped" in visitor.types("runs").stdout
    asked = visitor.types("ask", "--run", "mine", "--question", "Why?")
    stopped_at = r"run mine · stopped at step \d+ of 4000 · on "
    assert asked.returncode == 0 and re.search(stopped_at, asked.stdout), asked.stdout
    asked = pace.went_well(visitor.runs("make", "ask", here, "RUN=demo", 'QUESTION=What is a "list" in `python`?'))
    turn = r"\nWhat is a \"list\" in `python`\?\n  before  (?s:.*)\n  after   "
    assert "run demo · on gpu-master\n" in asked.stdout and re.search(turn, asked.stdout), asked.stdout


@pytest.mark.long  # tests/unit/console/test_launch_playbook.py, test_run_commands.py; the launch below
@pytest.mark.usefixtures("done")
def test_a_run_can_be_read_as_data(visitor: Visitor) -> None:
    asked = "--model tiny --run read --steps 3 --set rows_per_step=6 --set max_seq_length=64".split()
    apart = {"stderr": subprocess.PIPE}
    planned = visitor.types("plan", "--json", *asked, **apart)
    assert planned.returncode == 0 and json.loads(planned.stdout)["run"] == "read", planned.stderr
    read = pace.went_well(visitor.types("launch", "--json", "--follow", *asked, **apart))
    events = [json.loads(line) for line in read.stdout.splitlines()]
    assert events[0] == {"event": "started", "run": "read", "nodes": list(NODES)}
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]
    assert events[-1]["event"] == "result" and events[-1]["ok"]
    listed = visitor.types("runs", "--json", **apart)
    assert json.loads(listed.stdout)["runs"]["read"]["done"]
    pace.until(lambda: "no run is running" in visitor.types("status").stdout, pace.HANG_S, "no end")
    nothing = visitor.types("follow", "--json", **apart)
    assert nothing.returncode == 1 and nothing.stdout == "" and "no run is running" in nothing.stderr


@pytest.mark.usefixtures("done")
def test_a_launch_says_what_of_the_data_is_left_out_and_the_nodes_tell_its_end(
    visitor: Visitor, tmp_path: Path
) -> None:
    data = tmp_path / "notes.jsonl"
    data.write_text('{"prompt": "Who?", "completion": "Mitzi."}\n{"prompt": "Where?", "completion": ""}\n')
    asked = "--model tiny --run left --steps 1 --set rows_per_step=3 --follow --dataset".split()
    password = tmp_path / "password"
    password.write_text("a password for this test\n")
    vault = Path(sys.executable).with_name("ansible-vault")
    lock = [vault, "encrypt_string", "--vault-password-file", password, "--stdin-name", "motley_notify"]
    variables = visitor.folder / "inventory/loopback/group_vars/cluster.yml"
    before = variables.read_text()
    with webhook() as server:
        locked = subprocess.run(lock, input=server.address, capture_output=True, text=True, check=True).stdout
        variables.write_text(f"{before}\n{locked}")
        launched = visitor.types("launch", *asked, data, ANSIBLE_VAULT_PASSWORD_FILE=str(password))
        variables.write_text(before)
        assert launched.returncode == 0, launched.stdout
        lost = "1 of 2 records are skipped, the first: notes.jsonl line 2: the answer is empty"
        assert f"  ⚠ data: {lost}\n  ⚠ data: 0 rows are held out" in launched.stdout
        assert "the nodes send them: the address of motley_notify lies on" in launched.stdout
        assert server.address not in launched.stdout
        pace.until(lambda: server.got, 30)
        assert b"left: done" in server.got[0][2] and len(server.got) == 1
    for node in map(visitor.node, NODES):
        assert secret_of(node / "config/secret.json").messages == server.address
        assert (node / "config/secret.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("done")
def test_any_training_script_runs_over_unequal_nodes(visitor: Visitor, tmp_path: Path) -> None:
    hosts = visitor.folder / "inventory/loopback/hosts.yml"
    hosts.write_text(hosts.read_text().replace("127.0.0.11", "127.0.0.11\n      motley_processes: 2", 1))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/net.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 1)\n")
    script = tmp_path / "ddp.py"
    script.write_text(PLAIN_DDP)
    done = pace.went_well(visitor.types("torchrun", script, "5"))
    assert "4 processes on 3 nodes" in done.stdout and "exact resume" in done.stdout
    ends = re.findall(r"(\S+) +(?:\[\d\] )?rank (\d) of 4: (\S+)", done.stdout)
    assert sorted((node, rank) for node, rank, _ in ends) == [*zip([NODES[0], *NODES], "0123", strict=True)]
    assert len({weights for *_, weights in ends}) == 1, "DDP has combined the gradients of all four"
    stops_one_that_runs(visitor, script)


def stops_one_that_runs(visitor: Visitor, script: Path) -> None:
    running = visitor.start("./motley", "torchrun", *ON_FOLDERS, "--run", "long", script, "100000")
    assert running.stdout
    said = ""
    while "step 3 loss" not in said:
        line = running.stdout.readline()
        assert line, said
        said += line
    told = visitor.types("status").stdout
    assert "script long" in told and "100000" in told and told.count("running") == 3
    before = [(visitor.node(name) / "config/cluster_config.yaml").read_text() for name in NODES]
    second = visitor.types("launch", "--model", "tiny")
    assert second.returncode == 2 and f"'long' is running on {', '.join(NODES)}\nfix: " in second.stdout, second.stdout
    assert "./motley stop" in second.stdout and "or let it begin after that one: --queue" in second.stdout
    assert [(visitor.node(name) / "config/cluster_config.yaml").read_text() for name in NODES] == before
    assert "step 2 loss" in visitor.types("logs", "--no-follow").stdout
    stopped = visitor.types("stop")
    assert stopped.returncode == 0 and stopped.stdout.startswith("long stopped"), stopped.stdout
    rest, _ = pace.said_by(running)
    assert running.returncode == 0 and "long was stopped" in rest
    assert "the last was the script long: stopped" in visitor.types("status").stdout


@pytest.mark.usefixtures("done")
def test_undo_takes_the_folders_away_and_keeps_what_a_run_left(visitor: Visitor) -> None:
    *used, fresh = map(visitor.node, NODES)
    as_bootstrapped_but_for_a_result(fresh)
    pace.went_well(visitor.types("undo", "--phase", "all"))
    assert sorted(str(path.relative_to(fresh)) for path in fresh.rglob("*")) == ["results", "results/qa"]
    for node in used:
        left = {path.name for path in node.iterdir()}
        assert {"logs", "models", "results"} < left and not {name for name in left if name.startswith(("env", "code"))}
    assert "of it, static_ip changed nothing" in visitor.types("undo", "--phase", "static_ip").stdout


def as_bootstrapped_but_for_a_result(node: Path) -> None:
    for top in (".cache", "config", "data", "logs", "models", "results", "scripts"):
        shutil.rmtree(node / top, ignore_errors=True)
    for folder in "data/processed models/base models/checkpoints logs/runs results/qa config scripts".split():
        (node / folder).mkdir(parents=True)
