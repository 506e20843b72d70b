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
MAKERS_POD = "motley-qa-prepare-6h4p6"
NOT_MADE, LOG = "model and rows were not made", "see: kubectl --context=lab logs job/motley-qa-prepare"


def pod(first: dict[str, Any] | None = None, name: str = "motley-qa-0-x1y2z", **status: Any) -> dict[str, Any]:
    init = {"initContainerStatuses": [{"name": "prepare", "state": first}]} if first else {}
    status = {"phase": "Pending", **init, "containerStatuses": [AGENT], **status}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": "one"}, "status": status}


def maker(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return pod(None, MAKERS_POD, containerStatuses=[{"name": "prepare", "state": state}], **status)


def warning(name: str, why: str, message: str, at: str = "2026-11-25T23:22:00Z") -> dict[str, Any]:
    about = {"kind": "Job", "name": name}
    return {"involvedObject": about, "reason": why, "message": message, "type": "Warning", "lastTimestamp": at}


def init(name: str, state: dict[str, Any]) -> dict[str, Any]:
    found = pod(state)
    found["status"]["initContainerStatuses"][0]["name"] = name
    return found


def agent(state: dict[str, Any]) -> dict[str, Any]:
    return pod({"terminated": {"exitCode": 0}}, containerStatuses=[{"name": "agent", "state": state}])


def waits(why: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": why, "message": message}}


MAKES: dict[str, Any] = {"running": {}}
DIED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "at line 7\nPermissionError: /mnt/motley\n"}}
KILLED = maker({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed")
LIMIT = {"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}
NOWHERE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NO_ROOM = pod(None, conditions=[NOWHERE | {"message": "0/3 nodes are available"}], containerStatuses=[])
HOMELESS = pod(None, conditions=[NOWHERE], containerStatuses=[]) | {"spec": {}}
FAILED = MAKER | {"status": {"conditions": [LIMIT]}}
NAME = "motley-qa-0-x1y2z"
TOLD = [
    warning(NAME, "FailedMount", "hostPath type check failed: /srv is not a directory"),
    warning(NAME, "FailedScheduling", "0/3 nodes are available", "2026-11-25T23:59:00Z"),
    warning("another", "FailedMount", "elsewhere", "2026-11-25T23:59:00Z"),
    warning(NAME, "BackOff", "earlier", "2026-11-25T23:00:00Z"),
]
QUOTA = "failed quota: q: must specify limits.cpu for: prepare"


def refused(job: str) -> dict[str, Any]:
    """As a namespace refuses its pods, by a quota or by pod security."""
    return warning(job, "FailedCreate", f"Error creating: {QUOTA}")


@pytest.mark.parametrize(
    ("pods", "beside", "events", "said"),
    [
        ([pod(waits("ImagePullBackOff", "no such image"))], [], [], f"{NAME}: ImagePullBackOff no such image"),
        ([pod(MAKES)], [], [], f"{NAME}: model and rows are being made (prepare)"),
        ([pod(waits("PodInitializing"))], [], [], f"{NAME}: PodInitializing"),
        ([pod(DIED)], [], [], f"{NAME}: prepare ended with 1: PermissionError: /mnt/motley"),
        ([agent(waits("ErrImagePull", "denied"))], [], [], f"{NAME}: ErrImagePull denied"),
        ([pod(MAKES), pod(waits("ErrImagePull"), "motley-qa-1-a")], [], [], "motley-qa-1-a: ErrImagePull"),
        ([NO_ROOM], [], [], f"{NAME}: 0/3 nodes are available"),
        ([HOMELESS], [], [warning(NAME, "FailedScheduling", "no memory")], f"{NAME}: no memory"),
        ([pod(waits("PodInitializing"))], [], TOLD, f"{NAME}: FailedMount {TOLD[0]['message']}"),
        ([], [], [refused("motley-qa")], f"job motley-qa: {QUOTA}"),
        ([pod(MAKES)], [], [refused("motley-qa")], f"{NAME}: model and rows are being made (prepare)"),
        ([init("wait", MAKES)], [MAKER], [refused("motley-qa-prepare")], f"job motley-qa-prepare: {QUOTA}"),
        ([init("wait", MAKES)], [MAKER, maker(MAKES)], [], f"{MAKERS_POD}: model and rows are being made (prepare)"),
        ([pod(MAKES)], [FAILED, KILLED], [], f"{NOT_MADE}: {MAKERS_POD}: prepare ended with 137 (OOMKilled)  {LOG}"),
        ([], [FAILED], [], f"{NOT_MADE}: {LIMIT['message']}  {LOG}"),
    ],
    ids=[
        *("its first step cannot begin", "its first step goes on", "a kubelet's usual word", "its first step failed"),
        *("then its agent", "what is wrong before what goes on", "the scheduler's status", "the scheduler's event"),
        *("the last warning where no status tells", "refused pods leave an event", "over once they are there"),
        *("the job that prepares is refused", "the job that prepares goes on", "it was killed for its memory"),
        "it could not prepare, and its pods are gone",
    ],
)  # fmt: skip
def test_why_a_run_waits(pods: list[Any], beside: list[Any], events: list[Any], said: str) -> None:
    assert reason(JOB, pods, beside, events) == said


def test_a_suspended_job_waits_for_its_queue() -> None:
    found = reason(JOB | {"spec": {"suspend": True}}, [])
    assert 'kubectl --context=lab patch job motley-qa -p \'{"spec": {"suspend": false}}\'' in found
