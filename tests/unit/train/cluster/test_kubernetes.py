"""This pod's part of a Job of Kubernetes, from what the launch wrote and what the pod knows of itself."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import pace
from train.cluster import kubernetes
from train.errors import BadInput
from train.plan.launch.cluster_config import ClusterConfig, Member, read_cluster
from train.plan.placement.pipeline_split import Room
from train.plan.settings.read_settings import read_yaml
from train.runlog.secret import Secret, secret_of

NODES = tuple(Member(name=f"qa-{n}", address=f"qa-{n}.qa") for n in range(3))
CLUSTER = ClusterConfig(run="qa", node="qa-0", nodes=NODES, pipe=Room(4, 10, {"qa-0": 2, "qa-1": 2}))
JOB: dict[str, Any] = {"run": "qa", "launch": "a1", "prepare": "qa-prepare", "steps": []}
ENV = {"JOB_COMPLETION_INDEX": "1", "MOTLEY_ADDRESS": "127.0.0.1", "MOTLEY_TOKEN": "5f"}


def config_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / "launch.json").write_text("{}")
    (folder / "cluster_config.yaml").write_text(CLUSTER.to_text())
    (folder / "training_config.yaml").write_text("run: qa\nmodel: tiny\n")
    return folder


def prepared(home: Path, **facts: Any) -> None:
    (home / "jobs/qa").mkdir(parents=True, exist_ok=True)
    (home / "jobs/qa/prepared.json").write_text(json.dumps({"launch": "a1", **facts}))


def test_a_pod_knows_itself_by_its_address_and_the_others_by_name(tmp_path):
    home, place, config = tmp_path / "home", tmp_path / "home/jobs/qa/place-1", config_in(tmp_path / "config")
    prepared(home, rows="mine-123")
    kubernetes.furnish_pod(place, home, config, JOB, ENV | {"MOTLEY_MESSAGES": "https://me"})
    cluster = read_cluster(place / "config/cluster_config.yaml")
    assert [node.address for node in cluster.nodes] == ["qa-0.qa", "127.0.0.1", "qa-2.qa"]
    assert (cluster.node, cluster.interface) == ("qa-1", "lo")
    assert cluster.token == "5f" and cluster.pipe == CLUSTER.pipe
    assert (place / "config/secret.json").stat().st_mode & 0o077 == 0
    settings = read_yaml(place / "config/training_config.yaml", "config file")
    assert settings["dataset"] == f"{home}/data/processed/mine-123" and settings["home"] == str(place)
    assert (place / "models/base").is_symlink() and (place / "data").resolve() == home / "data"
    assert secret_of(place / "config/secret.json") == Secret(token="5f", messages="https://me")
    kubernetes.furnish_pod(place, home, config, JOB, ENV)
    assert secret_of(place / "config/secret.json") == Secret(token="5f"), "the next launch has no address of messages"


def test_rows_of_another_launch_are_not_its_own(tmp_path):
    prepared(tmp_path / "home", rows="x", launch="older")
    with pytest.raises(BadInput, match="there are no rows of this launch"):
        kubernetes.furnish_pod(tmp_path / "p", tmp_path / "home", config_in(tmp_path / "config"), JOB, ENV)


def test_steps_run_one_after_the_other_and_the_last_names_the_rows(tmp_path):
    job = JOB | {"steps": [["--help"], ["trace", "--help"]]}
    assert kubernetes.prepare(tmp_path, job) == 0
    assert kubernetes.prepared(tmp_path, job)["launch"] == "a1"
    job["steps"] = [["trace", "--json", "--modle", "x"], ["--help"]]
    assert kubernetes.prepare(tmp_path, job) == 1
    assert "modle" in kubernetes.prepared(tmp_path, job)["failed"]
    with pytest.raises(BadInput, match=r"model and rows could not be made: .*modle"):
        kubernetes.wait(tmp_path, job)


def test_it_waits_for_the_pod_that_prepares(tmp_path):
    ended: list[int] = []
    waits = threading.Thread(target=lambda: ended.append(kubernetes.wait(tmp_path, JOB)), daemon=True)
    waits.start()
    prepared(tmp_path, rows="x", launch="older")
    time.sleep(0.2)
    assert not ended
    prepared(tmp_path, rows="x")
    waits.join(60)
    assert ended == [0]


def test_it_waits_while_that_pod_shows_that_it_works_and_no_longer(tmp_path, monkeypatch, capsys):
    """Three times killed for its memory it has left no word; nobody else would end these pods."""
    monkeypatch.setattr(kubernetes, "SILENT_S", 1.0)
    monkeypatch.setattr(kubernetes, "SAY_S", 0.2)
    monkeypatch.setattr(kubernetes, "LOOK_S", 0.1)
    monkeypatch.setattr(kubernetes, "ALIVE_S", 0.1)
    (tmp_path / "jobs/qa").mkdir(parents=True)
    ended: list[float] = []

    def waits():
        with pytest.raises(BadInput, match=r"no sign of job qa-prepare .*\n.*kubectl describe job qa-prepare"):
            kubernetes.wait(tmp_path, JOB)
        ended.append(time.monotonic())

    waiting = threading.Thread(target=waits, daemon=True)
    waiting.start()
    with kubernetes.shown_alive(tmp_path / "jobs/qa"):
        time.sleep(2)
        assert not ended
    waiting.join(60)
    assert ended and "job qa-prepare makes model and rows" in capsys.readouterr().err


def test_a_volume_that_is_full_for_a_moment_ends_no_sign_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes, "ALIVE_S", 0.01)
    in_the_way = tmp_path / kubernetes.ALIVE
    in_the_way.mkdir()
    with kubernetes.shown_alive(tmp_path):
        time.sleep(0.2)
        in_the_way.rmdir()
        pace.until(in_the_way.is_file, 10)


def test_the_last_words_are_few_and_say_how_it_ended(tmp_path):
    log = tmp_path / "logs/runs/qa"
    log.mkdir(parents=True)
    steps = [{"event": "step", "step": n, "nodes": {"y" * 30: {}}} for n in range(200)]
    (log / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in [*steps, {"event": "done", "step": 199}]))
    (log / "members.jsonl").write_text(json.dumps({"event": "ended", "done": True, "reason": "all"}) + "\n")
    kubernetes.leave_words(tmp_path, "qa", str(tmp_path / "words"))
    lines = (tmp_path / "words").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["member", "event", "event"]
    assert json.loads(lines[-1].partition(" ")[2])["step"] == 199
    assert sum(map(len, lines)) < 4096


@pytest.mark.parametrize("lacks", ["MOTLEY_CONFIG", "MOTLEY_HOME"])
def test_by_hand_it_says_what_it_is_for(lacks, monkeypatch):
    for name in kubernetes.NEEDED:
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv(lacks)
    with pytest.raises(BadInput, match=f"this is no pod of a run: {lacks} is not set"):
        kubernetes.main(type("Args", (), {"verb": "join"}))
