"""The stand-ins for a Kubernetes judge as a real API server does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.kube_rules import judge, refused, selects
from tests.support.kube_server import VOLUME, job_of, made
from tests.support.kube_sim import Folder
from tests.support.kube_sim_kubectl import execute

LABELS = {"motley/run": "motley-qa", "motley/part": "agent"}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("motley/run=motley-qa", True),
        ("motley/run==motley-qa,motley/part=agent", True),
        ("motley/run=motley-qa,motley/part!=agent", False),
        ("motley/other!=x", True),
        ("motley/part", True),
        ("!motley/part", False),
        ("motley/run=", False),
    ],
)
def test_labels_are_selected_by_the_rules_of_the_server(selector: str, chosen: bool) -> None:
    assert selects(selector, LABELS) is chosen


@pytest.mark.parametrize("selector", ["motley/run=a b", "a=b=c", "motley/run=-x", "!a=b"])
def test_a_selector_that_it_cannot_read_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement"):
        selects(selector, LABELS)


def test_a_namespace_judges_pods() -> None:
    def pod(**asked: object) -> dict[str, object]:
        template = job_of(made(**asked))["spec"]["template"]
        return {"kind": "Pod", "metadata": template["metadata"] | {"name": "motley-qa-0-a"}, "spec": template["spec"]}

    quota = {"quota": ["limits.cpu", "requests.memory"]}
    assert refused(pod(**VOLUME), quota).endswith("failed quota: q: must specify limits.cpu for: wait,agent")
    assert not refused(pod(**VOLUME, limits={"cpu": 8}), quota)
    strict = {"security": "restricted"}
    assert not refused(pod(**VOLUME), strict), "a volume that all pods write is allowed there"
    own = pod(host_path="/srv/ai-cluster", gpu_gb=24)
    assert refused(own, strict).endswith('(volume "home" uses restricted volume type "hostPath")')
    assert refused(own, {"security": "baseline"}) and not refused(own, {})


def pod(phase: str, code: int = 0, *conditions: str) -> dict[str, Any]:
    told = [{"type": one, "status": "True"} for one in conditions]
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "code": code, "conditions": told}}


def rounds(job: dict[str, Any], pods: list[dict[str, Any]], count: int) -> list[str]:
    job["status"] = {"conditions": []}
    for _ in range(count):
        judge(job, pods)
    return [one["type"] for one in job["status"]["conditions"]]


def test_a_job_is_complete_some_rounds_after_its_pod_is_done() -> None:
    job, goes_on = job_of(made(**VOLUME)), pod("Running")
    pods = [pod("Succeeded"), goes_on]
    assert rounds(job, pods, 1) == []
    assert rounds(job, pods, 3) == ["SuccessCriteriaMet"], "another pod still goes on"
    goes_on["status"] |= {"phase": "Failed", "code": 143}
    assert rounds(job, pods, 5) == ["SuccessCriteriaMet", "Complete"]


def test_the_job_that_prepares_fails_when_its_tries_are_over() -> None:
    job = next(one for one in made(**VOLUME) if one["metadata"]["name"].endswith("-prepare"))
    assert rounds(job, [pod("Failed", 137)] * 2, 3) == []
    assert rounds(job, [pod("Failed", 137)] * 3, 3) == ["FailureTarget", "Failed"]


def test_a_pod_that_is_told_to_go_is_no_failure_and_a_verdict_ends_the_job() -> None:
    job = job_of(made(**VOLUME))
    assert rounds(job, [pod("Failed", 1, "DisruptionTarget")], 3) == []
    assert rounds(job, [pod("Failed", 137)] * 9, 3) == [], "tried again, by its index"
    assert rounds(job, [pod("Failed", 1)], 3) == ["FailureTarget", "Failed"]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("Succeeded", "error: cannot exec into a container in a completed pod; current phase is Succeeded"),
        ("Pending", 'unable to upgrade connection: container not found ("agent")'),
        ("", 'Error from server (NotFound): pods "p" not found'),
    ],
)
def test_what_cannot_be_entered_is_refused_in_the_words_of_kubectl(tmp_path: Path, phase: str, said: str) -> None:
    folder = Folder(tmp_path)
    with folder.locked() as objects:
        objects.update({"Pod/p": {"kind": "Pod", **pod(phase)}} if phase else {})
    with pytest.raises(SystemExit) as refusal:
        execute(folder, "p", ["true"])
    assert said in str(refusal.value)
