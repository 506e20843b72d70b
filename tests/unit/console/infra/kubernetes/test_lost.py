"""Pods of a machine that is gone, and of a run that is just over, as a real API server (1.36) shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from console.infra.kubernetes import node as kubernetes
from console.infra.kubernetes import plan, shown, start
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.report import Report
from console.infra.node import Silent
from console.run_commands import stop_lines
from console.watch.run_in_words import RunView
from tests.support.kube_server import NODE, PORTS, Server, stopped
from tests.unit.console.infra.kubernetes.test_launch import PLAN, SETTINGS
from train.errors import BadInput
from train.runlog.state import RunState


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(kubernetes, "time", made)
    monkeypatch.setattr(shown, "time", made)
    return made


def lose(pod: dict[str, Any], at: float = 0.0) -> None:
    pod["metadata"]["deletionTimestamp"] = datetime.fromtimestamp(at, UTC).isoformat()
    pod["spec"]["nodeName"] = "two"


FORCE = "machine two does not answer; if it is off: kubectl delete pod --force motley-qa-1-x1y2z"
LONG_AGO, AS_IT_STOPS = -1.7e9, kubernetes.GRACE_S
"""When the grace of a lost pod ends."""


@pytest.mark.parametrize(("ended", "waits_s"), [(LONG_AGO, 0), (AS_IT_STOPS, kubernetes.STOP_S - 10)])
def test_a_stop_waits_until_a_lost_pod_shows_as_such_and_names_it(
    server: Server, clock: Clock, ended: float, waits_s: float
) -> None:
    began = clock.now
    lose(server.pods()[1], began + ended)
    answer = NODE.stop()
    assert clock.now - began <= waits_s
    assert [one for one in server.left() if not one.startswith("Pod")] == ["Job motley-qa"], "no token is left"
    assert len(answer["left"]) == 2 and FORCE in stop_lines(["kubernetes"], {"kubernetes": answer}, {})[1]


@pytest.fixture
def stuck(server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Server:
    """It has been told to delete the run, and waits for a pod."""

    def kube(_: Any, verb: str, *words: str, timeout_s: float = 20, **__: Any) -> str:
        if verb != "delete":
            return server(verb, *words)
        clock.sleep(timeout_s)
        raise Silent(f"kubectl gave no answer within {timeout_s:.0f} s")

    monkeypatch.setattr(kubernetes.KubernetesNode, "kube", kube)
    monkeypatch.setattr(Cluster, "is_there", True)
    server.jobs()[-1]["metadata"]["deletionTimestamp"] = "2026-11-25T23:26:00Z"
    return server


@pytest.mark.parametrize(("verb", "ended"), [("plan", LONG_AGO), ("start", LONG_AGO), ("start", AS_IT_STOPS)])
def test_a_launch_names_the_pod_of_a_lost_machine_that_blocks_it(
    stuck: Server, clock: Clock, tmp_path: Path, verb: str, ended: float
) -> None:
    lose(stuck.pods()[1], clock.now + ended)
    cluster = Cluster(("kubectl",))
    with pytest.raises(BadInput) as refused:
        if verb == "plan":
            plan.try_out(PLAN, SETTINGS, cluster, PORTS)
        else:
            start.apply("qa", tmp_path / "qa.yaml", cluster)
    assert FORCE in str(refused.value)
    assert (clock.now > 1.8e9) is (ended == AS_IT_STOPS), "it is deleted, and waited for, where no pod is lost yet"


@pytest.mark.parametrize("kind", ["SuccessCriteriaMet", "FailureTarget"])
def test_a_job_that_is_about_to_end_is_active_no_more(kind: str) -> None:
    """Some seconds before Complete or Failed, alone."""
    job = {"metadata": {}, "spec": {}, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    assert not shown.is_active(job) and shown.is_over(job)


def test_fetch_reads_a_run_whose_pods_are_over_before_its_job_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into such a pod there is no exec."""
    made = [kubernetes.PodNode(name="motley-qa-0", pod="motley-qa-files", home="/h", kubectl=("kubectl",))]
    monkeypatch.setattr(kubernetes, "readers", lambda *_: made)
    assert NODE.parts("") == [NODE], "it begins"
    server.pods()[0]["status"]["phase"] = "Succeeded"
    assert NODE.parts("") == made


def test_what_is_to_be_typed_leads_to_the_same_namespace(server: Server, clock: Clock) -> None:
    there = kubernetes.KubernetesNode(name="k", home="", kubectl=("kubectl", "--context=lab", "--namespace=ml"))
    program = "kubectl --context=lab --namespace=ml "
    server.pods()[1]["status"], server.jobs()[-1]["spec"]["suspend"] = {"phase": "Pending"}, True
    assert f"{program}patch job motley-qa" in there.status()["how"]
    lose(server.pods()[1])
    assert f"{program}delete pod --force motley-qa-1-x1y2z" in there.status()["how"]
    assert f"{program}delete pod --force" in stopped(there)[1]
    server.objects = [one for one in server.objects if one["kind"] == "Secret"] + Server("old").objects
    server.ends("Complete")
    assert f"{program}delete job motley-old" in stopped(there)[1]
    server.objects = [one for one in server.objects if one["kind"] == "Pod"]
    assert f"fix: {program}delete pod/motley-old-0-x1y2z" in stopped(there)[1]


def test_a_lost_pod_of_the_job_that_prepares_is_named_by_stop(server: Server) -> None:
    """Its Job waits for it, and nobody waits for the Job."""
    lose(server.pods("prepare")[0])
    assert "delete pod --force motley-qa-prepare-0-x1y2z" in stopped()[1]
    assert not [one for one in server.left() if one.startswith("Secret")]


def lines_of(capfdbinary: pytest.CaptureFixture[bytes]) -> list[tuple[str, dict[str, Any]]]:
    lines = [line.partition(b" ") for line in capfdbinary.readouterr().out.splitlines()]
    return [(kind.decode(), json.loads(facts)) for kind, _, facts in lines]


def test_who_follows_a_run_of_lost_pods_alone_is_told_what_ends_that(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for pod in server.pods():
        lose(pod)
    Report(NODE, "qa").look()
    [(kind, facts)] = lines_of(capfdbinary)
    assert kind == "now" and FORCE.replace("motley-qa-1-x1y2z", "motley-qa-0-x1y2z") in facts["now"]["reason"]


def test_who_follows_while_others_train_is_told_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    report = Report(NODE, "qa")
    monkeypatch.setattr(report, "read", lambda *_: None)
    report.look()
    assert not lines_of(capfdbinary)
    lose(server.pods()[1])
    for _ in range(2):
        report.look()
    [(kind, facts)] = lines_of(capfdbinary)
    assert RunView(RunState(run="qa"), ["a"]).take("a", kind, facts) == [f"! {FORCE}"]


@pytest.mark.parametrize("runs", [0, 2])
def test_a_job_that_could_not_prepare_is_the_reason_of_its_run(server: Server, runs: int) -> None:
    server.ends("Failed", "Job has reached the specified backoff limit", which=0)
    for pod in [*server.pods()[runs:], *server.pods("prepare")]:
        pod["status"] = {"phase": "Pending"}
    found = NODE.status()
    said = found["how"] if runs else found["now"]["reason"]
    assert "model and rows were not made: Job has reached the specified backoff limit" in said
    assert said.endswith("see: kubectl logs job/motley-qa-prepare")
