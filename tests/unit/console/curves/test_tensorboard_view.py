"""TensorBoard of a run: its event logs are brought as they grow, each step is drawn once, and TensorBoard reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.__main__ import act
from console.command_line.verbs import parser
from console.curves import tensorboard_points, tensorboard_view
from console.infra.machines.node import LocalNode
from tests.support import ROOT

LOG = Path(__file__).parents[1] / "event_logs" / "lost-and-back.events.jsonl"
LINES = LOG.read_text().splitlines(keepends=True)


def node(home: Path) -> LocalNode:
    return LocalNode(name="a", home=str(home))


def test_an_event_log_is_brought_line_by_line_as_it_grows(tmp_path: Path) -> None:
    there, here = tmp_path / "home/logs/runs/r/events.jsonl", tmp_path / "r/nodes/a/events.jsonl"
    assert not tensorboard_view.bring_more(node(tmp_path / "home"), "r", here) and not here.exists()
    there.parent.mkdir(parents=True)
    half = "".join(LINES[:9])
    there.write_text(half + LINES[9][:20])
    assert tensorboard_view.bring_more(node(tmp_path / "home"), "r", here) and here.read_text() == half
    there.write_text("".join(LINES))
    assert tensorboard_view.bring_more(node(tmp_path / "home"), "r", here) and here.read_text() == "".join(LINES)
    there.write_text(half)  # the run was begun again under its name
    assert tensorboard_view.bring_more(node(tmp_path / "home"), "r", here) and here.read_text() == half
    longer = "".join(line.replace('"loss"', '"was": 1, "loss"') for line in LINES)
    there.write_text(longer)  # and when somebody looked, had come further than the one before
    assert tensorboard_view.bring_more(node(tmp_path / "home"), "r", here) and here.read_text() == longer


def test_each_step_is_drawn_once_whoever_tells_it(tmp_path: Path) -> None:
    for name, lines in (("a", LINES[:12]), ("b", LINES[6:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_text("".join(lines))
    source = tensorboard_points.Points(tmp_path)
    steps = [event["step"] for event in source.new() if event["event"] == "step"]
    whole = {json.loads(line)["step"] for line in LINES if '"event": "step"' in line}
    assert sorted(steps) == sorted(whole) and list(source.new()) == []


def test_a_figure_of_a_step_is_a_point_of_its_curve_at_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    writer = SimpleNamespace(add_event=written.append, flush=lambda: None)
    for name, module in {
        "compat.proto.event_pb2": SimpleNamespace(Event=SimpleNamespace),
        "compat.proto.summary_pb2": SimpleNamespace(
            Summary=type("Summary", (SimpleNamespace,), {"Value": lambda tag, simple_value: (tag, simple_value)})
        ),
        "summary.writer.event_file_writer": SimpleNamespace(EventFileWriter=lambda _: writer),
    }.items():
        monkeypatch.setitem(sys.modules, f"tensorboard.{name}", module)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/events.jsonl").write_text("".join(LINES))
    tensorboard_points.main(tmp_path, tmp_path / "curves", once=True)
    drawn = [(one.step, one.wall_time, dict(one.summary.value)) for one in written]
    last = [json.loads(line) for line in LINES if '"event": "step"' in line][-1]
    (points,) = (points for step, time, points in drawn if (step, time) == (last["step"], last["time"]))
    assert points["train/loss"] == last["loss"] and points["train/tokens_per_s"] == last["tokens"] / last["step_s"]
    assert {name: points[f"rows/{name}"] for name in last["nodes"]} == {
        name: did["rows"] for name, did in last["nodes"].items()
    }
    (held_out,) = (points for _, _, points in drawn if "held_out/loss" in points)
    assert held_out["held_out/loss"] == next(json.loads(line)["loss"] for line in LINES if '"event": "eval"' in line)


@pytest.mark.long
def test_tensorboard_reads_what_was_drawn(tmp_path: Path) -> None:
    """In its own environment, which this makes where it is not there yet."""
    python = tensorboard_view.environment()
    (tmp_path / "nodes/a").mkdir(parents=True)
    (tmp_path / "nodes/a/events.jsonl").write_text("".join(LINES))
    drawn = tmp_path / "tensorboard"
    subprocess.run(
        [python, "-m", "console.curves.tensorboard_points", str(tmp_path / "nodes"), str(drawn), "--once"],
        cwd=ROOT,
        check=True,
    )
    read = (
        "import sys, json; from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "found = EventAccumulator(sys.argv[1]); found.Reload()\n"
        "print(json.dumps({tag: [(p.step, p.value) for p in found.Scalars(tag)] for tag in found.Tags()['scalars']}))"
    )
    done = subprocess.run([python, "-c", read, str(drawn)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    last = [json.loads(line) for line in LINES if '"event": "step"' in line][-1]
    step, loss = found["train/loss"][-1]
    assert step == last["step"] == len(found["train/loss"]) and abs(loss - last["loss"]) < 1e-5
    assert {f"rows/{name}" for name in last["nodes"]} < set(found) and len(found["held_out/loss"]) == 1
    help_ = subprocess.run([python, "-m", "tensorboard.main", "--help"], capture_output=True, text=True, check=False)
    assert help_.returncode == 0 and "--reload_interval" in help_.stdout


def test_without_a_run_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "group_vars/cluster.yml").write_text(f"motley_state_folder: {tmp_path}/state\n")
    host = {"ansible_connection": "local", "motley_address": "127.0.0.1", "motley_home": str(tmp_path / "home")}
    shared = {"ansible_user": "me", "motley_subnet": "127.0.0.0/8", "motley_gateway": "127.0.0.2"}
    (inventory / "hosts.yml").write_text(json.dumps({"cluster": {"vars": shared, "hosts": {"a": host}}}))
    words = ["--inventory", str(inventory), "--results", str(tmp_path / "results"), "--run", "nobody"]
    assert act("tensorboard", parser("tensorboard").parse_args(words)) == 1
    assert "no node that answers has run 'nobody'" in capsys.readouterr().out
