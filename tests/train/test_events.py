"""events.jsonl: code, a real run and docs/inside/events.md say the same."""

import io
import json
import re
import time

import pytest

from console.curves import tensorboard_points
from tests.train import cluster
from train.cluster import agent_files
from train.cluster.agent_surroundings import Outside
from train.runlog import events
from train.runlog.event_types import FIELDS, EveryNodeStep, Rollout, is_event
from train.runlog.tail import read


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> cluster.Cluster:
    options = {"model": "tiny", "dataset": data, "max_steps": 4, "rows_per_step": 6, "eval_every": 2}
    return cluster.train(tmp_path_factory.mktemp("run"), options, 2)


def documented() -> dict[str, list[str]]:
    """Every ## section on the trainer's event log with the fields of its first table."""
    page = (cluster.ROOT / "docs/inside/events.md").read_text().split("\n# ")[0]
    sections = re.findall(r"^## (\w+)\n(.*?)(?=^Each of|^## |\Z)", page, re.S | re.M)
    return {name: re.findall(r"^\| `(\w+)`", text, re.M) for name, text in sections}


def test_the_page_describes_every_event_and_every_field():
    assert {name: set(fields) for name, fields in documented().items()} == {
        name: set(fields) for name, fields in FIELDS.items()
    }
    page = (cluster.ROOT / "docs/inside/events.md").read_text()
    parts = [page.split(f"{mark}")[1] for mark in ("Each of `nodes`", "a step also has `rollout`")]
    of_nodes, of_rollout = (re.findall(r"^\| `(\w+)`", part.split("\n\n", 2)[1], re.M) for part in parts)
    assert (of_nodes, of_rollout) == (list(EveryNodeStep.__annotations__), list(Rollout.__annotations__))


def test_a_real_run_writes_what_the_schema_says(run):
    found = run.events()
    assert {"start", "step", "eval", "proof", "checkpoint", "done"} <= {event["event"] for event in found}
    for event in found:
        assert set(event) == {"event", "time", *FIELDS[event["event"]]}
        assert is_event(event, whole=True), event
    for event in run.steps():
        for node in event["nodes"].values():
            assert set(node) == EveryNodeStep.__required_keys__


def test_every_node_writes_the_same_facts(run):
    def facts(rank):
        return [{**e, "time": 0, "folder": "", "seconds": 0} for e in run.events(rank)]

    assert facts(0) == facts(1)


def test_an_event_of_another_shape_is_refused(tmp_path):
    log = events.EventLog(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="reason"):
        log.write("stopped", step=1)
    with pytest.raises(ValueError, match="mood"):
        log.write("stopped", step=1, reason="SIGTERM", mood="calm")


def test_a_gradient_that_overflowed_is_written_as_json_knows_it(tmp_path):
    """fp16's scaler skips such a step; jq, JavaScript and pandas know no Infinity."""
    file = tmp_path / "events.jsonl"
    step = dict.fromkeys(FIELDS["step"], 1) | {"grad_norm": float("inf"), "nodes": {}}
    events.EventLog(file).write("step", **step)
    (written,) = [json.loads(line, parse_constant=pytest.fail) for line in file.read_text().splitlines()]
    assert written["grad_norm"] is None
    assert "train/loss" in tensorboard_points.scalars(written) and "train/grad_norm" not in tensorboard_points.scalars(
        written
    )


def test_a_torn_last_line_is_dropped_and_the_log_goes_on(tmp_path):
    file = tmp_path / "events.jsonl"
    events.EventLog(file).write("stopped", step=1, reason="SIGTERM")
    with file.open("a") as handle:
        handle.write('{"event": "step", "st')
    assert [event["step"] for event in read(file)] == [1]
    events.EventLog(file).write("stopped", step=2, reason="SIGTERM")
    assert [event["step"] for event in read(file)] == [1, 2]


def test_the_progress_line_is_one_line_for_a_person(run):
    out = io.StringIO()
    events.ProgressLine(out, 4).show(run.steps()[0])
    line = out.getvalue()
    assert line.count("\n") == 1
    assert re.search(
        r"step 1/4  25 %  loss 6\.\d+  [\d.]+ rows/s  \d+ tokens/s  node-0 3  node-1 3  eta 0:00:\d\d", line
    )


def test_start_up_says_the_reason_of_every_choice(run):
    said = run.said()
    for choice in (
        "backend hf: no GPU",
        "precision fp32:",
        "micro-batch",
        "wire fp32:",
        "sync auto:",
        "shares 3:3: even",
    ):
        assert choice in said
    assert run.said(1) == "", "one process of all talks"


def test_what_a_full_disk_did_not_take_is_written_later(tmp_path):
    class Disk:
        def __init__(self, file):
            self.file, self.full = file, False

        def write(self, data):
            if self.full:
                raise OSError(28, "No space left on device")
            return self.file.write(data[:7] if len(data) > 100 else data)  # and a disk may take a part only

        def fileno(self):
            return self.file.fileno()

    log = events.EventLog(tmp_path / "events.jsonl")
    log.file = disk = Disk(log.file)
    log.write("stopped", step=1, reason="a")
    disk.full = True
    log.write("stopped", step=2, reason="b")
    disk.full = False
    for step in (3, 4):
        log.write("stopped", step=step, reason="c" * 20)
    while log.unwritten:
        log.unwritten = log.unwritten[disk.write(log.unwritten) :]
    assert [event["step"] for event in read(tmp_path / "events.jsonl")] == [1, 2, 3, 4]


def test_a_full_disk_of_the_host_is_no_silence(tmp_path):
    """Its agent restarts everyone where no sign of life comes; nothing can be written, but the trying is seen."""
    file = tmp_path / "events.jsonl"
    log = events.EventLog(file)
    log.write("stopped", step=1, reason="a")
    progress = agent_files.TrainerProgress(file, 0, Outside())
    progress.begin()
    log.file = io.FileIO(file)  # cannot be written, as on a full disk
    time.sleep(0.05)
    quiet = progress.since
    progress.read()
    assert progress.since == quiet
    log.write("stopped", step=2, reason="b")
    progress.read()
    assert progress.since > quiet and progress.step == 1


def test_a_large_checkpoint_on_a_slow_disk_is_no_stall(tmp_path):
    file = tmp_path / "events.jsonl"
    file.touch()
    progress = agent_files.TrainerProgress(file, 0, Outside())
    progress.begin()
    with file.open("a") as log:
        log.write('{"event": "start", "step": 0, "weights": 1000000000}\n{"event": "step", "step": 1, "step_s": 1}\n')
    progress.read()
    assert progress.limit_s > 400
    with file.open("a") as log:
        log.write('{"event": "checkpoint", "step": 1, "seconds": 10.0}\n')
    progress.read()
    assert progress.limit_s == 20 + 40
