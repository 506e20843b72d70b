"""A run's curves where others look: each step once, a resumed run is one run, and what was sent is not sent again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from console import report_to
from console.curves import tensorboard_view, trackers
from console.report import command
from console.report.read_run import read_history
from tests.support import ROOT, pace
from train.errors import BadInput, CheckFailed

LOG = Path(__file__).parents[1] / "event_logs" / "lost-and-back.events.jsonl"
TIMES = {"compute_s": 0.3, "wait_s": 0.1}


def whole(line: str) -> str:
    """With what the kept log lacks."""
    event = json.loads(line)
    if event["event"] == "step":
        event["sync_s"] = 0.1
        event["nodes"] = {name: TIMES | facts for name, facts in event["nodes"].items()}
    return json.dumps({"event": event.pop("event"), **event}) + "\n"


LINES = [whole(line) for line in LOG.read_text().splitlines()]
STEPS = sorted({json.loads(line)["step"] for line in LINES if '"event": "step"' in line})


class Kept:
    """A tracker that keeps what it is given."""

    def __init__(self, run: str, about: dict[str, Any], folder: Path) -> None:
        self.run, self.about, self.added, self.numbers = run, about, [], {}
        ALL.append(self)

    def add(self, step: int, at: float, points: dict[str, float]) -> None:
        self.added.append((step, at, points))

    def end(self, step: int, numbers: dict[str, float]) -> None:
        self.ended_at, self.numbers = step, numbers


ALL: list[Any] = []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ALL.clear()
    monkeypatch.setitem(trackers.KINDS, "wandb", Kept)
    logs(tmp_path / "notes", a=LINES)
    return tmp_path / "notes"


def logs(folder: Path, **of_nodes: list[str]) -> None:
    for name, lines in of_nodes.items():
        file = folder / "nodes" / name / "events.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines))
        (file.parent / "launch.json").write_text(json.dumps({"run": "notes", "all": {"lora_r": 16}}))


def send(folder: Path) -> Any:
    report_to.write_about(folder, report_to.launched_of(folder))
    trackers.main("wandb", folder, once=True)
    return ALL[-1]


def trained(kept: Any) -> list[int]:
    return [step for step, _, points in kept.added if "train/loss" in points]


def test_each_step_is_sent_once_with_settings_and_the_reports_numbers(folder: Path) -> None:
    found = send(folder)
    assert trained(found) == STEPS and found.about["settings"] == {"lora_r": 16}
    assert found.numbers == report_to.numbers(read_history(folder)) and found.numbers["report/tokens"] > 0
    assert any(name.startswith("report/computing_percent/") for name in found.numbers)
    times = {step: at for step, at, _ in found.added}
    assert times[STEPS[0]] == next(json.loads(line)["time"] for line in LINES if '"event": "step"' in line)


def test_a_run_that_was_resumed_or_is_sent_again_is_one_run(folder: Path) -> None:
    half = len(LINES) // 2
    logs(folder, a=LINES[:half])
    first = send(folder)
    logs(folder, a=LINES)
    second = send(folder)
    third = send(folder)
    assert first.run == second.run == third.run and first.run.startswith("notes-")
    assert second.ended_at == third.ended_at == STEPS[-1], "the numbers of the run stand at its last step"
    assert trained(first) + trained(second) == STEPS and third.added == []
    assert trained(first) and trained(second)


def test_what_one_node_missed_another_has_told_in_the_order_of_steps(folder: Path) -> None:
    away = [line for line in LINES if not ('"event": "step"' in line and 4 <= json.loads(line)["step"] <= 8)]
    logs(folder, a=away, b=LINES)
    assert trained(send(folder)) == STEPS


def test_another_run_of_that_name_is_another_run(folder: Path) -> None:
    first = send(folder)
    later = [json.dumps(json.loads(line) | {"time": json.loads(line)["time"] + 1e6}) + "\n" for line in LINES]
    logs(folder, a=later)
    second = send(folder)
    assert second.run != first.run and trained(second) == STEPS


def test_a_program_that_refuses_costs_nothing_of_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_to, "environment", lambda kind: "false")
    with pytest.raises(CheckFailed, match="wandb did not take the run"):
        command.report(run="notes", results=folder.parent, to="wandb")


def test_a_run_that_is_not_here_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no events of a run"):
        command.report(run="notess", results=tmp_path, to="wandb")
    assert not list(tmp_path.iterdir())


def evaluated(step: int, **measured: Any) -> str:
    return json.dumps({"event": "eval", "time": 9e9, "step": step, **measured}) + "\n"


def test_an_infinite_held_out_loss_is_no_point_and_the_rest_is_sent(folder: Path) -> None:
    logs(folder, a=[*LINES, evaluated(STEPS[-1] + 1, loss=None, metrics={"on notes": None, "on code": 2.5})])
    assert trained(found := send(folder)) == STEPS
    assert found.added[-1][2] == {"held_out/on code": 2.5}


def test_what_the_base_is_worth_before_the_first_step_is_sent_once(folder: Path) -> None:
    logs(folder, a=[evaluated(0, loss=3.5), *LINES])
    step, _, points = send(folder).added[0]
    assert (step, points) == (0, {"held_out/loss": 3.5})
    assert send(folder).added == []


PLAYED = """
import sys
from console.curves import trackers
class Kept:
    def __init__(self, run, about, folder): self.file = open(folder / "kept", "a")
    def add(self, step, at, points): print("step", step, file=self.file, flush=True)
    def end(self, step, numbers): print("end", numbers["report/tokens"], file=self.file, flush=True)
trackers.KINDS["wandb"] = Kept
from pathlib import Path
trackers.EVERY_S = 0.05
trackers.main("wandb", Path(sys.argv[1]), once=False)
"""


def test_it_grows_with_the_run_and_ends_with_all_of_it(folder: Path) -> None:
    """SIGTERM, as the launch that watches gives it."""
    logs(folder, a=LINES[: len(LINES) // 2])
    report_to.write_about(folder, {})
    words = [sys.executable, "-c", PLAYED, str(folder)]
    kept = folder / trackers.FOLDER / "kept"
    with subprocess.Popen(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        pace.until(lambda: kept.exists() and "step" in kept.read_text(), 60, lambda: "nothing came")
        logs(folder, a=LINES)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    *steps, end = kept.read_text().splitlines()
    assert end.startswith("end ") and f"step {STEPS[-1]}" in steps


def test_a_launch_feeds_it_while_somebody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    begun: list[list[str]] = []

    class Process:
        returncode = 1

        def __init__(self, words: list[str], **how: Any) -> None:
            begun.append(words)

        def terminate(self) -> None: ...

        def communicate(self, timeout: float) -> tuple[str, str]:
            return "", "no room\n"

    monkeypatch.setattr(report_to, "environment", lambda kind: "python")
    monkeypatch.setattr(report_to.subprocess, "Popen", Process)
    inventory: Any = SimpleNamespace(path=tmp_path)
    with report_to.fed(inventory, "notes", ""):
        pass
    assert begun == []
    with report_to.fed(inventory, "notes", "mlflow"):
        assert begun[0][1:4] == ["-m", "console.report_to", "mlflow"]
    said = capsys.readouterr().out
    assert "mlflow did not take all of it: no room" in said and "./motley report --run notes --to mlflow" in said


def test_a_run_that_was_started_is_watched_though_the_program_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed = SimpleNamespace(returncode=1)
    monkeypatch.setattr(tensorboard_view.subprocess, "run", lambda *_, **__: failed)
    inventory: Any = SimpleNamespace(path=tmp_path)
    with report_to.fed(inventory, "notes", "mlflow"):
        said = capsys.readouterr().out
    assert "mlflow could not be installed" in said and "the run continues   all of it: ./motley fetch" in said


def test_it_brings_the_logs_until_it_is_told_to_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []
    began: list[list[str]] = []
    feeder = SimpleNamespace(poll=lambda: None, terminate=lambda: None, wait=lambda _: 0)
    monkeypatch.setattr(report_to, "from_inventory", lambda _: [])
    monkeypatch.setattr(report_to, "bring_all", lambda nodes, run, there: brought.append(run) or 1)
    monkeypatch.setattr(report_to, "environment", lambda kind: "python")
    monkeypatch.setattr(report_to.signal, "signal", lambda *_: None)
    monkeypatch.setattr(report_to.time, "sleep", Mock(side_effect=KeyboardInterrupt))  # as SIGTERM does
    monkeypatch.setattr(report_to.subprocess, "Popen", lambda words, **how: began.append(words) or feeder)
    inventory: Any = SimpleNamespace(state=folder)
    assert report_to.main("wandb", "notes", inventory, folder.parent) == 0
    assert brought == ["notes", "notes"] and began[0][2:4] == ["console.curves.trackers", "wandb"]
    assert json.loads((folder / trackers.FOLDER / trackers.ABOUT).read_text())["numbers"]["report/tokens"] > 0


READ = {
    "trackio": """
from trackio.sqlite_storage import SQLiteStorage as S
[name] = [run.name for run in __import__("trackio").Api().runs("motley")]
print([row["step"] for row in S.get_logs("motley", name) if "train/loss" in row])
""",
    "mlflow": """
from mlflow.tracking import MlflowClient
client = MlflowClient("file:" + FOLDER + "/mlruns")
[run] = client.search_runs([client.get_experiment_by_name("motley").experiment_id])
assert run.data.params["lora_r"] == "16" and run.data.metrics["report/tokens"] > 0
print([m.step for m in client.get_metric_history(run.info.run_id, "train/loss")])
""",
    "wandb": """
import glob
from wandb.proto import wandb_internal_pb2 as pb

def records(data):  # LevelDB's log: blocks of 32 KiB, a record's parts with a sum, a length and a kind each
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield record
            record = b""

steps, ids = [], set()
for file in sorted(glob.glob(FOLDER + "/wandb/offline-run-*/*.wandb")):
    for data in records(open(file, "rb").read()):
        record = pb.Record()
        record.ParseFromString(data)
        ids |= {record.run.run_id} - {""}
        if "train/loss" in {item.key or "/".join(item.nested_key) for item in record.history.item}:
            steps.append(record.history.step.num)
assert len(ids) == 1, ids
print(steps)
""",
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import glob
[folder] = glob.glob(FOLDER + "/tensorboard/*")
found = EventAccumulator(folder)
found.Reload()
print([point.step for point in found.Scalars("train/loss")])
""",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", READ)
def test_the_program_itself_reads_it(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its locked set, offline, in two parts, as a run that was resumed."""
    folder = tmp_path / "notes"
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for lines in (LINES[: len(LINES) // 2], LINES, LINES):
        logs(folder, a=lines)
        report_to.send(kind, folder)
        time.sleep(1.1)  # wandb names its folders by the second
    program = f"FOLDER = {str(folder / trackers.FOLDER)!r}\n{READ[kind]}"
    words = [tensorboard_view.environment(kind), "-c", program]
    allowed = os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true"}
    done = pace.does(*words, cwd=ROOT, env=allowed)
    assert json.loads(done.stdout.splitlines()[-1]) == STEPS
