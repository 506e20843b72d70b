"""Why a pod waits: statuses and events as a real kubelet and a real API server (1.36) wrote them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from console.infra.kubernetes import waiting

reason = partial(waiting.reason, program="kubectl --context=lab")
AGENT = {"name": "agent", "state": {"waiting": {"reason": "PodInitializing"}}}
"""A kubelet lists the agent from the start."""
JOB = {"kind": "Job", "metadata": {"name": "motley-qa"}, "spec": {"completions": 1}}
MAKER = {"kind": "Job", "metadata": {"name": "motley-qa-prepare"}, "spec": {}, "status": {}}
REFUSED = {
    "pod security": 'pods "motley-qa-0-4zx2k" is forbidden: violates PodSecurity "restricted:latest": '
    'restricted volume types (volume "home" uses restricted volume type "hostPath")',
    "a quota": 'pods "motley-qa-0-4zx2k" is forbidden: failed quota: q: must specify limits.cpu for: prepare',
}


def pod(first: dict[str, Any] | None = None, name: str = "motley-qa-0-x1y2z", **status: Any) -> dict[str, Any]:
    init = {"initContainerStatuses": [{"name": "prepare", "state": first}]} if first else {}
    status = {"phase": "Pending", **init, "containerStatuses": [AGENT], **status}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": "one"}, "status": status}


def maker(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return pod(None, "motley-qa-prepare-6h4p6", containerStatuses=[{"name": "prepare", "state": state}], **status)


def warning(name: str, why: str, message: str, at: str = "2026-11-25T23:22:00Z") -> dict[str, Any]:
    about = {"kind": "Job", "name": name}
    return {"involvedObject": about, "reason": why, "message": message, "type": "Warning", "lastTimestamp": at}


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "ImagePullBackOff no such image"),
        ({"running": {}}, "model and rows are being made (prepare)"),
        ({"waiting": {"reason": "PodInitializing"}}, "PodInitializing"),
        (
            {"terminated": {"exitCode": 1, "reason": "Error", "message": "at line 7\nPermissionError: /mnt/motley\n"}},
            "prepare ended with 1: PermissionError: /mnt/motley",
        ),
    ],
)
def test_the_first_step_that_is_not_behind_it_says_why(first: dict[str, Any], said: str) -> None:
    assert reason(JOB, [pod(first)]) == f"motley-qa-0-x1y2z: {said}"


def test_then_its_agent_does() -> None:
    pulls = {"name": "agent", "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}}}
    done = {"terminated": {"exitCode": 0}}
    assert reason(JOB, [pod(done, containerStatuses=[pulls])]) == "motley-qa-0-x1y2z: ErrImagePull denied"


def test_what_is_wrong_comes_before_what_goes_on() -> None:
    pulls = pod({"waiting": {"reason": "ErrImagePull"}}, "motley-qa-1-a")
    makes = pod({"running": {}})
    assert reason(JOB, [makes, pulls]) == "motley-qa-1-a: ErrImagePull"


def test_a_pod_without_a_machine_says_what_the_scheduler_said() -> None:
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = pod(None, conditions=[nowhere | {"message": "0/3 nodes are available"}], containerStatuses=[])
    assert reason(JOB, [found]) == "motley-qa-0-x1y2z: 0/3 nodes are available"
    found = pod(None, conditions=[nowhere], containerStatuses=[])
    found["spec"] = {}
    told = warning("motley-qa-0-x1y2z", "FailedScheduling", "0/3 nodes: 3 Insufficient memory")
    assert reason(JOB, [found], [], [told]).endswith("3 Insufficient memory")


def test_of_what_no_status_tells_the_last_warning_does() -> None:
    """A volume that cannot be mounted; that no machine took it once is over."""
    name, waits = "motley-qa-0-x1y2z", {"waiting": {"reason": "PodInitializing"}}
    told = [
        warning(name, "FailedMount", "hostPath type check failed: /srv/ai-cluster is not a directory"),
        warning(name, "FailedScheduling", "0/3 nodes are available", "2026-11-25T23:59:00Z"),
        warning("another", "FailedMount", "elsewhere", "2026-11-25T23:59:00Z"),
    ]
    assert "FailedMount hostPath type check failed: /srv" in reason(JOB, [pod(waits)], [], told)


@pytest.mark.parametrize("why", REFUSED)
def test_pods_that_the_namespace_refuses_have_left_an_event(why: str) -> None:
    told = warning("motley-qa", "FailedCreate", f"Error creating: {REFUSED[why]}")
    assert reason(JOB, [], [], [told]) == f"job motley-qa: {REFUSED[why]}"
    assert reason(JOB, [pod({"running": {}})], [], [told]).endswith("(prepare)"), "it is over"


def test_pods_that_wait_for_the_job_that_prepares_say_why_that_waits() -> None:
    waits = pod({"running": {}})
    waits["status"]["initContainerStatuses"][0]["name"] = "wait"
    told = warning("motley-qa-prepare", "FailedCreate", f"Error creating: {REFUSED['a quota']}")
    assert reason(JOB, [waits], [MAKER], [told]) == f"job motley-qa-prepare: {REFUSED['a quota']}"
    found = reason(JOB, [waits], [MAKER, maker({"running": {}})])
    assert found == "motley-qa-prepare-6h4p6: model and rows are being made (prepare)"


def test_a_job_that_could_not_prepare_is_told_with_its_log() -> None:
    """Three times killed for its memory."""
    failed = {"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}
    job = MAKER | {"status": {"conditions": [failed]}}
    killed = maker({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed")
    found = reason(JOB, [pod({"running": {}})], [job, killed])
    assert "prepare ended with 137 (OOMKilled)" in found and found.endswith(
        "kubectl --context=lab logs job/motley-qa-prepare"
    )
    assert "backoff limit" in reason(JOB, [], [job])


def test_a_suspended_job_waits_for_its_queue() -> None:
    found = reason(JOB | {"spec": {"suspend": True}}, [])
    assert 'kubectl --context=lab patch job motley-qa -p \'{"spec": {"suspend": false}}\'' in found
