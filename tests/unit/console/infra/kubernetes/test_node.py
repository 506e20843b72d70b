"""What a run on Kubernetes is, from what kubectl shows of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from console.__main__ import act, of_infra
from console.command_line.verbs import parser
from console.infra.kubernetes import node as kubernetes
from console.infra.kubernetes import shown
from console.infra.node import Silent, from_inventory
from console.inventory.check import check
from console.run_commands import stop_lines
from console.watch.status import run_lines, status_lines
from tests.support import ROOT
from tests.support.kube_server import NODE, VOLUME, Server, stopped
from tests.support.stand_ins import program
from train.errors import BadInput


def test_the_inventory_of_the_project_is_one_cluster_by_kubectl() -> None:
    inventory = check(ROOT / "inventory/kubernetes")
    assert inventory.findings == []
    [node] = from_inventory(inventory)
    assert isinstance(node, kubernetes.KubernetesNode) and node.kubectl == ("kubectl",)
    assert of_infra("kubernetes", "inventory/homelab") == str(ROOT / "inventory/kubernetes")


def test_where_it_goes_is_told_to_kubectl() -> None:
    values = {"motley_kubernetes_context": "lab", "motley_kubernetes_namespace": "ml"}
    assert kubernetes.kubectl_of(values) == ("kubectl", "--context=lab", "--namespace=ml")
    node = kubernetes.PodNode(name="motley-qa-0", pod="motley-qa-0-x1y2z", home="/h", kubectl=("kubectl",))
    assert node.command(["python", "-"]) == "kubectl exec -i motley-qa-0-x1y2z -c agent -- python -".split()


@pytest.mark.parametrize("verb", ["bootstrap", "pause", "undo", "doctor", "ask", "clean", "torchrun"])
def test_verbs_that_mean_nothing_there_say_so_in_one_line(verb: str) -> None:
    words = {"pause": ["a"], "torchrun": ["a.py"], "ask": ["--question", "x"]}.get(verb, [])
    with pytest.raises(BadInput) as refused:
        act(verb, parser(verb).parse_args(["--infra", "kubernetes", *words]))
    assert str(refused.value).startswith(f"{verb}: ") and "\n" not in str(refused.value)


def test_of_a_run_that_is_over_the_last_words_are_read() -> None:
    told = [
        ("member", {"event": "ended", "done": True, "reason": "all 8 steps are trained"}),
        ("event", {"event": "done", "step": 8}),
        ("event", {"event": "step", "step": 8, "loss": 1.5}),
    ]
    words = "\n".join(f"{kind} {json.dumps(event)}" for kind, event in told) + "\nevent {torn\nSaved 5"
    ends = [{"exitCode": 0, "message": words}, {}]
    pods = [{"status": {"containerStatuses": [{"name": "agent", "state": {"terminated": end}}]}} for end in ends]
    facts = shown.ended_facts({}, pods)
    assert facts["step"]["loss"] == 1.5
    assert [event["event"] for event in (*facts["events"], *facts["members"])] == ["done", "ended"]


def test_of_a_run_that_no_agent_began_status_says_why_it_ended(serves: Any) -> None:
    """A folder that the pods' user cannot write; the words are those of a real kubelet and Job controller."""
    server = serves(Server(host_path="/srv/ai-cluster", gpu_gb=24))
    rule = "failed with exit code 1 matching FailJob rule at index 1"
    server.ends("Failed", f"Container prepare for pod ml/motley-qa-0-x1y2z {rule}")
    log = "Traceback …\nPermissionError: [Errno 13] Permission denied: '/mnt/motley/jobs'\n"
    for one in server.pods():
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}
        waits = {"waiting": {"reason": "PodInitializing"}}
        one["status"] = {"phase": "Failed", "initContainerStatuses": [{"name": "prepare", "state": ended}]}
        one["status"]["containerStatuses"] = [{"name": "agent", "state": waits}]
    said = status_lines(["kubernetes"], {"kubernetes": NODE.status()}, {})[0]
    assert "failed: motley-qa-0-x1y2z: prepare ended with 1: PermissionError" in said and rule in said


MADE, MAKES = {"terminated": {"exitCode": 0}}, {"running": {}}
UNBEGUN = {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ((None, MAKES, UNBEGUN), "motley/part=agent -c prepare"),
        ((None, MADE, MAKES), "motley/part=agent -c agent"),
        ((MAKES, MAKES, UNBEGUN), "motley/part=prepare -c prepare"),
        ((UNBEGUN, MAKES, UNBEGUN), "motley/part=agent -c wait"),
        ((MADE, MADE, MAKES), "motley/part=agent -c agent"),
    ],
)
def test_logs_are_those_of_the_step_that_has_some(
    serves: Any, monkeypatch: pytest.MonkeyPatch, states: Any, shown: str
) -> None:
    """kubectl itself knows only: container "agent" in pod … is waiting to start."""
    prepares, first, agent = states
    asked = VOLUME if prepares else {"host_path": "/srv/ai-cluster", "gpu_gb": 24}
    server = serves(Server(**asked))
    for one in server.pods():
        name = "wait" if prepares else "prepare"
        one["status"] = {"initContainerStatuses": [{"name": name, "state": first}]}
        one["status"]["containerStatuses"] = [{"name": "agent", "state": agent}]
    for one in server.pods("prepare"):
        one["status"] = {"containerStatuses": [{"name": "prepare", "state": prepares}]}
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: ran.append(words))
    NODE.logs(10, follow=False)
    assert f"-l motley/run=motley-qa,{shown}" in " ".join(ran[0])


def test_logs_of_a_run_without_any_step_say_what_it_waits_for(server: Server) -> None:
    for one in (*server.pods(), *server.pods("prepare")):
        one["status"] = {"phase": "Pending", **PENDING}
    with pytest.raises(Silent, match="0/3 nodes are available"):
        NODE.logs(10, follow=False)


def test_a_command_that_fails_in_a_pod_is_told_by_its_own_last_line() -> None:
    node = kubernetes.PodNode(name="p", pod="p", home="/h", kubectl=("kubectl",))
    words = ["Traceback …", "OSError: no room", "command terminated with exit code 1"]
    assert node.why(words) == "OSError: no room"
    assert node.why([]) == "it gave no answer"


def test_a_server_that_is_off_is_the_reason_of_each_verb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As kubectl 1.32 says it."""
    log = 'E1127 03:26:44.883914 12008 memcache.go:265] "Unhandled Error" err="could not get API group list"'
    why = "The connection to the server 127.0.0.1:9 was refused - did you specify the right host or port?"
    program(tmp_path / "kubectl", f"#!/bin/sh\nprintf '%s\\n' '{log}' '{log}' '{why}' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for verb in (NODE.status, NODE.runs, NODE.stop, lambda: NODE.parts("")[0].files("")):
        with pytest.raises(Silent) as silent:
            verb()
        assert str(silent.value) == why
    assert stop_lines(["kubernetes"], {}, {"kubernetes": why})[0] == "no node answers"


def test_free_room_of_a_volume_that_nobody_has_looked_at_is_not_invented(server: Server) -> None:
    server.ends("Complete")
    found = [NODE.status()]
    server.objects = []
    said = [line for look in [*found, NODE.status()] for line in status_lines(["k"], {"k": look}, {})]
    assert not [line for line in said if "free" in line] and any("no run here" in line for line in said)


def test_without_kubectl_it_says_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Silent, match="there is no kubectl on this machine"):
        NODE.status()


NOWHERE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory."}
PENDING: dict[str, Any] = {"conditions": [NOWHERE]}


def test_on_a_shared_volume_stop_takes_what_prepared_too(server: Server) -> None:
    for pod_ in server.pods("prepare"):
        pod_["status"] = {"phase": "Succeeded"}
    answer, said = stopped()
    assert server.left() == [] and answer["left"] == [] and answer["was_on"]
    assert "nothing left" in said


def test_of_a_run_that_is_over_stop_leaves_what_fetch_reads_and_says_so(server: Server) -> None:
    """Its Job and its pods have no token in them."""
    server.ends("Complete")
    answer, said = stopped()
    assert {one.split()[0] for one in server.left()} == {"Job", "Pod"} and len(server.left()) == 4
    assert not answer["was_on"] and not answer["left"]
    assert "kept for fetch: job motley-qa" in said and "kubectl delete job motley-qa" in said


def test_a_run_that_has_just_ended_is_not_stopped(server: Server) -> None:
    """Its pods are over some seconds before the Job says so."""
    server.pods()[0]["status"]["phase"] = "Succeeded"
    assert not NODE.stop(timeout_s=2)["was_on"]
    assert "Job motley-qa" in server.left()


def test_what_a_stop_left_is_named_where_no_run_is(server: Server) -> None:
    server.objects = [one for one in server.objects if one["kind"] in ("Secret", "Service")]
    answer, said = stopped()
    assert answer["left"] == ["service/motley-qa", "secret/motley-qa"]
    assert "still there: service/motley-qa, secret/motley-qa; fix: kubectl delete service/motley-qa" in said


@pytest.mark.parametrize(
    ("changed", "on", "reason", "how"),
    [
        ({}, True, "its pods are not there yet", "job motley-qa, 0 of 3 pods"),
        ({"deletionTimestamp": "now"}, False, None, ""),
    ],
)
def test_a_job_without_an_agent_waits_and_one_that_is_deleted_is_over(
    server: Server, changed: dict[str, str], on: bool, reason: str | None, how: str
) -> None:
    server.objects = server.jobs()[-1:]
    server.jobs()[-1]["metadata"] |= changed
    found = NODE.status()
    assert (found["run"], found["on"], found["now"].get("reason"), found["how"]) == ("qa", on, reason, how)


def test_who_may_see_no_events_is_told_that(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.objects = [one for one in server.objects if one["kind"] != "Pod"]

    def kube(words: Any, verb: str, kinds: str, *more: str, **_: Any) -> str:
        if kinds == "events":
            raise Silent('events is forbidden: User "anna" cannot list resource "events"')
        return server(verb, kinds, *more)

    monkeypatch.setattr(kubernetes.KubernetesNode, "kube", kube)
    assert 'User "anna" cannot list resource "events"' in NODE.status()["now"]["reason"]


@pytest.fixture
def two(serves: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The one trains; the other is newer, and its queue has not let it begin."""
    trains, waits = Server(), Server("kq", began="2026-11-25T23:59:00Z")
    trains.jobs()[-1]["status"] = {"ready": 3}
    waits.jobs()[-1]["spec"]["suspend"] = True
    waits.objects = [one for one in waits.objects if one["kind"] != "Pod"]
    found: Server = serves(trains.add(waits))
    known = {"qa": {"step": 180, "steps": 500, "loss": 1.5, "time": 1.0, "done": False}}
    monkeypatch.setattr(kubernetes.PodNode, "runs", lambda _: {"runs": known, "on": "qa"})
    return found


def test_of_two_runs_the_one_that_trains_is_meant_and_the_other_is_named(two: Server) -> None:
    found = NODE.status()
    assert found["run"] == "qa" and found["how"].endswith("; also kq (suspended)")


def test_both_runs_are_listed_as_they_are(two: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    node = kubernetes.PodNode(name="motley-qa-0", pod="p", home="", kubectl=())
    living = lambda _, job: [node] if job["metadata"]["name"] == "motley-qa" else []  # noqa: E731
    monkeypatch.setattr(kubernetes.KubernetesNode, "living", living)
    lines = {line.split()[0]: line for line in run_lines({"kubernetes": NODE.runs()}, {})}
    assert " running " in lines["qa"] and " waiting " in lines["kq"]
    assert "2026-11-2" in lines["kq"], "it began then, not in 1970"


def test_stop_ends_the_one_that_trains_and_names_the_other(two: Server) -> None:
    answer = NODE.stop(timeout_s=2)
    assert answer["run"] == "qa" and "Job motley-kq" in two.left() and "Job motley-qa" not in two.left()
    said = "\n".join(stop_lines(["kubernetes"], {"kubernetes": answer}, {}))
    assert "also there: kq (suspended); the next stop ends it" in said
