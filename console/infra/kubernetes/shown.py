"""What kubectl shows of a run, read: whether its Job goes on, which pods run, how they ended.

Pure: objects as the API server gives them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypedDict

from console.infra.kubernetes.objects import ANNOTATED, HOME
from train.runlog.state import Event

LATE_S = 30.0
"""Past its grace a pod answers to no kubelet; this much for clocks that differ."""
ENDS = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""The last two stand for some seconds before the first two."""
OVER, LEAVES, WAITS, RUNS = range(4)
Object = dict[str, Any]


class Ended(TypedDict):
    """What the agents of a run have left, as a node's answer has it."""

    step: Event
    events: list[Event]
    members: list[Event]


def run_of(job: Object) -> str:
    return str(job["metadata"].get("annotations", {}).get(ANNOTATED, job["metadata"]["name"]))


def home_of(run: str, place: int) -> str:
    return f"{HOME}/jobs/{run}/place-{place}"


def index_of(pod: Object) -> int:
    meta = pod["metadata"]
    known = {**meta.get("labels", {}), **meta.get("annotations", {})}
    return int(known["batch.kubernetes.io/job-completion-index"])


def has(job: Object, kind: str) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def is_over(job: Object, pods: Sequence[Object] = ()) -> bool:
    """Whether the Job has ended by itself: a pod that has done the run is seen before its Job is."""
    done = any(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)
    return done or any(has(job, kind) for kind in ENDS)


def is_active(job: Object) -> bool:
    return not (is_over(job) or "deletionTimestamp" in job["metadata"])


def rank(job: Object) -> int:
    """The run that is meant where none is named: one that runs, else one that waits, else one that is leaving."""
    if is_over(job):
        return OVER
    waits = job["spec"].get("suspend") or not job.get("status", {}).get("ready")
    return (WAITS if waits else RUNS) if is_active(job) else LEAVES


def is_running(pod: Object) -> bool:
    """Whether the pod's agent runs, not what runs before it."""
    status = pod.get("status", {})
    runs = any("running" in container["state"] for container in status.get("containerStatuses", []))
    return status.get("phase") == "Running" and runs and not is_lost(pod)


def is_lost(pod: Object) -> bool:
    """Past its grace, and no kubelet says that it has ended: its machine is gone."""
    grace_ends = str(pod["metadata"].get("deletionTimestamp", ""))  # the end of its grace, not its begin
    return bool(grace_ends) and time.time() > datetime.fromisoformat(grace_ends).timestamp() + LATE_S


def lost_words(pods: Sequence[Object], program: str) -> str:
    """Kubernetes makes such a pod again once its machine is known to be off; only a person knows that."""
    lost = [pod for pod in pods if is_lost(pod)]
    names = " ".join(str(pod["metadata"]["name"]) for pod in lost)
    machines = ", ".join(dict.fromkeys(str(pod["spec"].get("nodeName", "?")) for pod in lost))
    return f"machine {machines} does not answer; if it is off: {program} delete pod --force {names}" if lost else ""


def containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def last_words(pods: Sequence[Object]) -> list[tuple[str, Event]]:
    """What the agents have left when they ended, as their event logs have it."""
    found = []
    for said in [one["state"].get("terminated", {}).get("message", "") for pod in pods for one in containers(pod)]:
        for line in said.splitlines():
            kind, _, text = line.partition(" ")
            with suppress(ValueError):  # of what failed before its agent began these are lines of its log
                event = json.loads(text)
                if kind in ("event", "member") and isinstance(event, dict):
                    found.append((kind, event))
    return found


def ended_words(pod: Object) -> Iterator[str]:
    """Each step of it that failed, and the last line that it left."""
    for container in containers(pod):
        ended = container["state"].get("terminated", {})
        if ended.get("exitCode", 0):
            why = f" ({ended['reason']})" if ended.get("reason", "Error") != "Error" else ""
            last_line = ended.get("message", "").strip().rpartition("\n")[2]
            last_line = f": {last_line}" if last_line and not last_line.startswith(("event ", "member ")) else ""
            yield f"{pod['metadata']['name']}: {container['name']} ended with {ended['exitCode']}{why}{last_line}"


def ended_facts(job: Object, pods: Sequence[Object]) -> Ended:
    words = last_words(pods)
    events = [event for kind, event in words if kind == "event"]
    steps = [event for event in events if event["event"] == "step"]
    last = max(steps, key=lambda event: int(event["step"]), default={})
    members = [event for kind, event in words if kind == "member"]
    ends = [event for event in events if event["event"] != "step"]
    if has(job, "Failed") and not any(event["event"] in ("done", "failed") for event in ends):
        ends = [{"event": "failed", "time": time.time(), "step": 0, "node": "", "message": why_ended(job, pods)}]
    return {"step": last, "events": ends[-1:], "members": members}


def verdict_of(job: Object) -> str:
    """What a Job says of its failure."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((str(condition.get("message", "")) for condition in conditions if condition["type"] == "Failed"), "")


def why_ended(job: Object, pods: Sequence[Object]) -> str:
    """In one line: what failed in its pods, and what the Job says of that."""
    verdict = verdict_of(job)
    failures = [words for pod in pods for words in ended_words(pod)]
    failures = [words for words in failures if words.partition(":")[0] in verdict] or failures
    return f"{failures[0]} ({verdict})" if failures and verdict else verdict


def begun_step(pods: Sequence[Object]) -> str:
    """The last step of a pod that has lines to show: its agent, or what runs before it."""
    begun = [container["name"] for pod in pods for container in containers(pod) if "waiting" not in container["state"]]
    return "agent" if "agent" in begun else next(iter(begun), "")
