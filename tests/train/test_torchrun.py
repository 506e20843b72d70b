"""A node's part of a script of one's own, with torchrun itself: what it writes down for others."""

import errno
import io
import json
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tests.support import ROOT, pace
from tests.train.cluster import environment, free_port
from train.cluster import torchrun
from train.cluster.torchrun import Output, script_of
from train.runlog import paths
from train.runlog.secret import Secret

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(sum_of_ranks)
print(f"rank {dist.get_rank()}: {sum_of_ranks.item():g} in {os.path.basename(os.getcwd())}, {sys.argv[1:]}", flush=True)
open(os.environ["MOTLEY_RESULTS"] + f"/of-{dist.get_rank()}", "w").close()
while "wait" in sys.argv:
    time.sleep(0.1)
if "fail" in sys.argv and dist.get_rank() == 1:
    raise ValueError("broken on purpose")
dist.barrier()
os._exit(0)
"""


class Node:
    def __init__(self, home):
        self.home = home
        (home / "scripts/own").mkdir(parents=True)
        (home / "config").mkdir()
        (home / "scripts/own/script.py").write_text(SCRIPT)
        (home / paths.WANTED).write_text("own\n")

    def start(self, *words):
        command = [sys.executable, "-m", "train", "torchrun", "--run", "own", "--folder", "scripts/own", "--"]
        own = ["--node-rank=0", "--nproc-per-node=2", "--tee=3", f"--log-dir={self.home}/.cache"]
        own += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        env = environment() | {"GLOO_SOCKET_IFNAME": "lo", "MOTLEY_HOME": str(self.home), "MOTLEY_NODE": "a"}
        whole = [*command, *own, "script.py", *words]
        return subprocess.Popen(whole, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def told(self):
        folder = paths.logs(self.home, "own")
        lines = [json.loads(line) for line in (folder / paths.OUTPUT).read_text().splitlines()]
        return [line["text"] for line in lines], json.loads((folder / paths.AGENT).read_text())


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.mark.long  # tests/roles/test_loopback.py has a run of it
def test_what_it_prints_and_that_it_is_done_is_written_down(node):
    process = node.start("--lr", "0.1")
    out, err = pace.said_by(process)
    assert process.returncode == 0, out + err
    lines, last = node.told()
    printed = ["[0] rank 0: 3 in own, ['--lr', '0.1']", "[1] rank 1: 3 in own, ['--lr', '0.1']"]
    assert sorted(line for line in lines if "rank" in line) == printed and "rank 0: 3" in out, "for the journal"
    assert last["state"] == "done" and last["script"] == "script.py --lr 0.1"
    assert sorted(path.name for path in paths.results(node.home, "own").iterdir()) == ["of-0", "of-1"]
    assert not (node.home / paths.WANTED).exists(), "a reboot must not start it alone"
    members = (paths.logs(node.home, "own") / paths.MEMBERS).read_text().splitlines()
    ended = json.loads(members[-1])
    assert (ended["event"], ended["done"], ended["reason"]) == ("ended", True, "exit code 0")


def test_a_failure_is_the_scripts_own_last_line_and_not_torchruns(node):
    message = node.home / "message"
    (node.home / paths.SECRET).write_text(Secret(messages=f'echo "$MOTLEY_TITLE $(cat)" > {message}').to_json())
    process = node.start("fail")
    out, err = pace.said_by(process)
    assert process.returncode == 1
    lines, last = node.told()
    assert last["state"] == "failed" and "ValueError: broken on purpose" in "\n".join(last["last"])
    assert "ChildFailedError" in out + err and not any("ChildFailedError" in line for line in lines)
    assert message.read_text().startswith("own: failed ") and "broken on purpose" in message.read_text()


def test_a_stop_reaches_its_processes(node):
    process = node.start("wait")
    output = paths.logs(node.home, "own") / paths.OUTPUT
    pace.until(lambda: output.exists() and output.read_text().count("rank") >= 2, pace.HANG_S)
    assert node.told()[1]["state"] == "running"
    process.send_signal(signal.SIGTERM)
    assert pace.ended(process) == 143
    assert node.told()[1]["state"] == "stopped"
    mine = f"MOTLEY_HOME={node.home}".encode()
    assert not [folder for folder in Path("/proc").glob("[0-9]*") if mine in environment_of(folder)]


def environment_of(folder):
    try:
        return (folder / "environ").read_bytes()
    except OSError:
        return b""


def output_of(tmp_path, *lines):
    output = Output(tmp_path / "output.jsonl")
    output.pass_on(iter([f"{line}\n".encode() for line in lines]))
    return output


OF_TORCHRUN = "E1123 04:42:45.174000 11096 torch/distributed/elastic/multiprocessing/api.py:1002] "
REPORT = OF_TORCHRUN + "failed (exitcode: {}) local"


def test_who_only_lost_another_is_told_apart(tmp_path):
    lost = output_of(tmp_path, "RuntimeError: [pair.cc:553] Connection closed by peer", REPORT.format(1), "its report")
    warning = OF_TORCHRUN + "Sending process 15430 closing signal SIGTERM"
    assert output_of(tmp_path, "RuntimeError: broken pipe", warning, REPORT.format(1)).is_of_a_peer
    two = ("[0] ValueError: x", "[1] RuntimeError: [pair.cc:553] Connection closed by peer", REPORT.format(1))
    assert not output_of(tmp_path, *two).is_of_a_peer and output_of(tmp_path, *two).reason(1) == "[0] ValueError: x"
    assert lost.is_of_a_peer and lost.reason(1).endswith("Connection closed by peer")
    own = output_of(tmp_path, "ValueError: x", REPORT.format(1))
    assert not own.is_of_a_peer and own.reason(1) == "ValueError: x"
    killed = output_of(tmp_path, "step 3", REPORT.format(-9))
    assert killed.reason(1) == "ended by SIGKILL"
    assert output_of(tmp_path).reason(2) == "exit code 2, and it printed nothing"


def test_an_abort_behind_an_error_is_not_the_reason(tmp_path):
    threads = "terminate called without an active exception"
    own = output_of(tmp_path, "[0] step 3", "[1] ValueError: x", f"[1] {threads}", REPORT.format(-6))
    assert own.reason(1) == "[1] ValueError: x" and not own.is_of_a_peer
    bare = output_of(tmp_path, "[1] step 3", f"[1] {threads}", REPORT.format(-6)).reason(1)
    assert bare.startswith("ended by SIGABRT: ") and bare.endswith("let it end with os._exit(0)")
    killed = output_of(tmp_path, "[0] UserWarning: an Exception was ignored", REPORT.format(-9))
    assert killed.reason(1) == "ended by SIGKILL"


class Full(io.StringIO):
    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_script_runs_on_where_nobody_can_take_what_it_prints(tmp_path, monkeypatch):
    """Its output goes to a file on the same disk, where no unit starts it."""

    def run(script, _):
        script.output.pass_on(iter([b"one\n", b"two\n"]))
        return 0

    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    monkeypatch.setattr(torchrun.NodeScript, "run", run)
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", Full())
    assert torchrun.main(Namespace(run="own", folder=Path(), words=["train.py"])) == 0
    kept = (paths.logs(tmp_path, "own") / paths.OUTPUT).read_text().splitlines()
    assert [json.loads(line)["text"] for line in kept] == ["one", "two"]


def test_of_a_progress_bar_the_last_state_is_kept(tmp_path):
    output_of(tmp_path, "0 %\r50 %\r100 %")
    assert json.loads((tmp_path / "output.jsonl").read_text())["text"] == "100 %"


def test_lines_within_a_moment_are_ordered(tmp_path):
    output_of(tmp_path, *map(str, range(200)))
    kept = [json.loads(line) for line in (tmp_path / "output.jsonl").read_text().splitlines()]
    times = [line["time"] for line in kept]
    assert times == sorted(set(times)) and [line["text"] for line in kept] == [*map(str, range(200))]


def test_the_script_as_it_was_typed():
    assert script_of(["--nnodes=2", "train.py", "--lr", "1"]) == "train.py --lr 1"
    assert script_of(["--nnodes=2", "--module", "train", "bench", "sync"]) == "train bench sync"
