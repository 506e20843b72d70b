"""A script of one's own as its nodes report it: lines in, lines and a verdict out."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from console import run_commands
from console.infra.node import from_inventory
from console.torchrun import plan as torchrun_plan
from console.torchrun import script_view
from console.torchrun.script_view import ScriptView
from console.watch import status
from tests.support.folders import inventory_of
from train.plan.launch.torchrun import TorchrunPlan
from train.runlog.secret import Secret

NODES = ["a", "b", "c"]


def now(state: str, time: float, *, on: bool = True, **more: Any) -> dict[str, Any]:
    return {"on": on, "now": {"time": time, "state": state, "script": "train.py", **more}}


def seen(*views: tuple[str, dict[str, Any]], at: float = 100.0) -> ScriptView:
    view = ScriptView("mnist", dict.fromkeys(NODES, 10.0))
    for node, facts in views:
        assert view.take(node, "now", facts, at) == []
    return view


def test_each_line_is_shown_once_and_none_of_an_earlier_start() -> None:
    view = seen()
    lines = [{"time": at, "text": f"line {at}"} for at in (9.0, 11.0, 11.000001)]
    assert [view.take("a", "out", line, 1.0) for line in lines] == [[], ["line 11.0"], ["line 11.000001"]]
    assert [view.take("a", "out", line, 2.0) for line in lines] == [[], [], []]
    assert view.take("b", "out", lines[1], 2.0) == ["line 11.0"]


def test_it_is_over_when_it_is_over_on_every_node() -> None:
    view = seen(("a", now("done", 20, on=False)), ("b", now("running", 20)), ("c", now("done", 20, on=False)))
    assert [view.over(node, 100) for node in NODES] == [True, False, True]
    view.take("b", "now", now("done", 21, on=False), 101)
    assert view.over("b", 101)
    ended = view.verdict(NODES)
    assert ended.ok and ended.lines[0].startswith("done · mnist")


def test_a_state_of_the_start_before_says_nothing() -> None:
    view = seen(("a", now("done", 9, on=False)))
    assert not view.over("a", 101) and view.over("a", 104), "without a process and a word for three seconds"
    assert view.verdict(["a"]).lines == ("mnist ended without a word on a", "see: ./motley logs")


def test_the_node_that_failed_is_named_and_not_one_that_lost_it() -> None:
    lost = {"peer": True, "reason": "Connection closed by peer", "last": []}
    broken = {"peer": False, "reason": "ValueError: broken\nmore", "last": ["one", "two"]}
    view = seen(
        ("a", now("failed", 20.0, on=False, **lost)),
        ("b", now("failed", 20.4, on=False, **broken)),
        ("c", now("failed", 20.2, on=False, **lost)),
    )
    ended = view.verdict(NODES)
    assert not ended.ok and ended.lines == ("mnist failed on b: ValueError: broken", "    one", "    two")


def test_who_is_silent_and_who_waits_for_one_that_failed_is_said_once() -> None:
    view = seen(("a", now("failed", 20, on=False)), ("b", now("running", 20)), ("c", now("running", 20)))
    assert view.warnings(NODES, 118) == []
    view.take("b", "now", now("running", 60), 140)
    view.take("a", "now", now("failed", 20, on=False), 140)
    first, second = view.warnings(NODES, 140)
    assert first.startswith("! c does not answer") and second.startswith("! failed on a, still there on b, c")
    assert view.warnings(NODES, 140) == []


def test_a_stop_is_no_failure() -> None:
    stopped = seen(*((node, now("stopped", 20, on=False)) for node in NODES))
    assert stopped.verdict(NODES).ok and stopped.verdict(NODES).lines == ("mnist was stopped",)


def test_the_words_of_status_and_stop_and_follow(tmp_path: Path, capsys: Any) -> None:
    look = now("running", 20) | {"run": "mnist", "time": 80.0, "since": 20.0, "how": "unit", "free_bytes": 9e9}
    look |= {"start": {}, "step": {}, "events": [], "members": [], "checkpoint": 0, "gpus": []}
    lines = status.status_lines(["a"], {"a": look}, {})
    assert lines[0].startswith("script mnist  train.py  for 0:01:00   its lines: ./motley logs")
    assert lines[1].split() == ["a", "running"]
    done = {"a": look | {"on": False, "now": look["now"] | {"state": "done"}}}
    assert status.status_lines(["a"], done, {})[0] == "no run is running; the last was the script mnist: done"
    answer = {"was_on": True, "run": "mnist", "script": "train.py", "checkpoint": 0, "forced": 0, "left": []}
    stopped = run_commands.stop_lines(["a"], {"a": answer | {"ports": [], "seconds": 1.0}}, {})
    assert stopped[0].startswith("mnist stopped; ") and stopped[1].split() == "a nothing left · 1.0 s".split()
    assert script_view.follow([], "mnist", {"a": look}, as_json=True) == 1
    assert "no events" in capsys.readouterr().err


def test_it_is_watched_to_its_end_on_nodes_that_are_folders(tmp_path: Path, capsys: Any) -> None:
    homes = {name: tmp_path / name for name in ("a", "b")}
    code = "import json, sys, time; print(json.dumps(dict(time=time.time(), text='line of ' + sys.argv[1])))"
    for name, home in homes.items():
        folder = home / "logs/runs/mnist"
        folder.mkdir(parents=True)
        with (folder / "output.jsonl").open("wb") as out:
            subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True)
        (folder / "agent.json").write_text('{"time": 5, "state": "done", "script": "train.py"}')
    nodes = from_inventory(inventory_of(tmp_path, homes))
    assert script_view.show(nodes, ScriptView("mnist", {"a": 1.0, "b": 1.0})) == 0
    out = capsys.readouterr().out.splitlines()
    assert sorted(out[:2]) == ["a  line of a", "b  line of b"] and out[2].startswith("done · mnist")


def test_a_node_runs_it_by_a_script_that_says_what_is_set() -> None:
    node = {"name": "a", "address": "10.0.0.1", "interface": "enp3s0", "cores": 8, "processes": 2, "home": "/h"}
    node |= {"computes_on": "CPU, 8 cores", "words": ["--nnodes=1", "train.py", "a b"]}
    data = {"run": "mnist", "script": "train.py 'a b'", "nodes": [node], "folder": "scripts/torchrun/mnist"}
    data |= {"source": "/here", "files": {"train.py": {"size": 2000}}, "warnings": ["b is off; it is skipped"]}
    plan = TorchrunPlan.from_json(data | {"old_code": []})
    told = Secret(messages="https://me")
    script, about, secret = torchrun_plan.files(plan, "a", told, {"watts": 250}, {"NCCL_ALGO": "Ring"})
    assert (secret.path, secret.mode) == ("config/secret.json", 0o600) and "https://me" in secret.content
    assert script.path == "scripts/launch_cluster.sh" and script.mode == 0o700
    assert "export GLOO_SOCKET_IFNAME=enp3s0" in script.content and "NCCL_ALGO=Ring" in script.content
    assert 'export NCCL_SOCKET_IFNAME="="enp3s0' in script.content and "OMP_NUM_THREADS=4" in script.content
    assert "HF_HUB_OFFLINE" not in script.content, "a script of your own may fetch what it likes"
    command = "-m train torchrun --run mnist --folder scripts/torchrun/mnist -- --nnodes=1 train.py 'a b'"
    assert script.content.rstrip().endswith(command)
    assert about.path == "config/cluster_config.yaml" and 'run: "mnist"\n' in about.content
    assert 'limits: {"watts": 250}\n' in about.content
    assert 'interface: "enp3s0"\n' in about.content, "which doctor compares"
    lines = torchrun_plan.lines(plan)
    assert "2 processes on 1 nodes" in lines[0] and "2: ranks 0–1" in lines[2]
    assert any("exact resume" in line for line in lines) and lines[-1] == "  ⚠ b is off; it is skipped"
