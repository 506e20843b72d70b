"""What a run on Kubernetes is, from what kubectl shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.__main__ import act, of_infra
from console.infra import kubernetes
from console.infra.choose import from_inventory
from console.infra.node import Silent
from console.inventory.check import check
from console.kubernetes.check import wrong
from console.verbs import parser
from train.errors import BadInput

REPOSITORY = Path(__file__).parents[3]


def pod(index: int, state: dict[str, Any], **status: Any) -> dict[str, Any]:
    label = {"batch.kubernetes.io/job-completion-index": str(index)}
    states = [{"name": "agent", "state": state}]
    status = {"phase": "Running", "containerStatuses": states, **status}
    return {"metadata": {"name": f"motley-qa-{index}-x1y2z", "annotations": label}, "status": status}


def test_the_inventory_of_the_project_is_one_cluster_by_kubectl() -> None:
    inventory = check(REPOSITORY / "inventory/kubernetes")
    assert inventory.findings == []
    [node] = from_inventory(inventory)
    assert isinstance(node, kubernetes.KubernetesNode) and node.kubectl == ("kubectl",)
    assert of_infra("kubernetes", "inventory/homelab") == str(REPOSITORY / "inventory/kubernetes")


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
    words = "\n".join(
        f"{kind} {json.dumps(event)}"
        for kind, event in [
            ("member", {"event": "ended", "reason": "done: all 8 steps are trained"}),
            ("event", {"event": "done", "step": 8}),
            ("event", {"event": "step", "step": 8, "loss": 1.5}),
        ]
    )
    pods = [pod(0, {"terminated": {"exitCode": 0, "message": words + "\nevent {torn"}}), pod(1, {"terminated": {}})]
    facts = kubernetes.ended_facts(pods)
    assert facts["step"]["loss"] == 1.5
    assert [event["event"] for event in (*facts["events"], *facts["members"])] == ["done", "ended"]


def test_what_it_waits_for_is_said() -> None:
    job = {"metadata": {"name": "motley-qa"}, "spec": {}}
    pull = pod(0, {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, phase="Pending")
    assert "motley-qa-0-x1y2z: ImagePullBackOff no such image" in kubernetes.waiting(job, [pull])["reason"]
    nowhere = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    full = pod(0, {}, conditions=[nowhere], containerStatuses=[])
    assert "0/3 nodes are available" in kubernetes.waiting(job, [full])["reason"]
    assert "suspended" in kubernetes.waiting(job | {"spec": {"suspend": True}}, [])["reason"]


def test_the_pod_that_reads_files_is_one_that_the_api_accepts() -> None:
    container = {"image": "r@sha256:0", "securityContext": {"allowPrivilegeEscalation": False}}
    spec = {"containers": [container], "securityContext": {"runAsUser": 1000}, "imagePullSecrets": [{"name": "pull"}]}
    volumes = [{"name": "home", "hostPath": {"path": "/srv/ai-cluster", "type": "DirectoryOrCreate"}}]
    job = {"spec": {"template": {"spec": spec}}}
    reader = kubernetes.reader_pod("motley-qa-files-0", job, volumes, "one")
    assert wrong(reader) == [] and reader["spec"]["nodeName"] == "one"


def test_without_kubectl_it_says_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Silent, match="there is no kubectl on this machine"):
        kubernetes.KubernetesNode(name="kubernetes", home="", kubectl=("kubectl",)).status()


@pytest.mark.parametrize(("also", "on"), [({}, True), ({"deletionTimestamp": "now"}, False)])
def test_a_job_without_an_agent_waits_and_one_that_is_deleted_is_over(
    monkeypatch: pytest.MonkeyPatch, also: dict[str, str], on: bool
) -> None:
    job = {"metadata": {"name": "motley-qa", "creationTimestamp": "1", **also}, "spec": {"completions": 3}}
    listed = {"jobs": [job], "pods": []}
    monkeypatch.setattr(kubernetes.KubernetesNode, "listed", lambda _, kind, __: listed[kind])
    found = kubernetes.KubernetesNode(name="kubernetes", home="", kubectl=("kubectl",)).status()
    assert found["on"] is on and found["run"] == "motley-qa"
    assert found["now"].get("reason") == ("its pods are not there yet" if on else None)
    assert found["how"] == ("job motley-qa, 0 of 3 pods" if on else "")
