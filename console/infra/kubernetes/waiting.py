"""Why a run has no agent yet, or not all of them: as `kubectl get pods` and `kubectl get events` show it.

Pure: objects as the API server gives them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from console.infra.kubernetes.shown import Object, ended_words, has, verdict_of
from plugins.module_utils.motley.node_replies import AgentView

NOT_YET = "its pods are not there yet"
SUSPENDED = "the Job is suspended: a queue lets it begin, or {} patch job {} -p '{}'"
RESUMED = '{"spec": {"suspend": false}}'
STARTS = ("PodInitializing", "ContainerCreating")
"""What a kubelet says of each container whose turn has not come, whatever it is that keeps it."""


def facts(reason: str) -> AgentView:
    return {"time": time.time(), "state": "waiting", "reason": reason, "peers": {}}


def reason(
    job: Object,
    pods: Sequence[Object],
    beside: Sequence[Object] = (),
    events: Sequence[Object] = (),
    *,
    program: str,
) -> str:
    """What is wrong, else what goes on, else nothing. `beside`: the Job that makes model and rows, and its pods;
    `program`: kubectl as a person types it."""
    if job["spec"].get("suspend"):
        return SUSPENDED.format(program, job["metadata"]["name"], RESUMED)
    makers = [one for one in beside if one["kind"] == "Pod"]
    makers = sorted(makers, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))[-1:]
    found: list[tuple[bool, str]] = []
    for maker in [one for one in beside if one["kind"] == "Job"]:
        if has(maker, "Failed"):
            return f"model and rows were not made: {_why_failed(maker, makers, program)}"
        found += [] if makers or has(maker, "Complete") else _refused(maker, events)
    found += [] if len(pods) >= job["spec"].get("completions", 1) else _refused(job, events)
    found += [words for pod in [*makers, *pods] for words in _of_pod(pod, events)]
    return next((words for wrong, words in sorted(found, key=lambda one: not one[0])), "")


def _why_failed(maker: Object, pods: Sequence[Object], program: str) -> str:
    ended = [words for pod in pods for words in ended_words(pod)]
    return f"{'; '.join(ended) or verdict_of(maker)}  see: {program} logs job/{maker['metadata']['name']}"


def _refused(job: Object, events: Sequence[Object]) -> Iterator[tuple[bool, str]]:
    """A namespace judges no Job, only its pods: by a quota, by pod security, by a webhook."""
    if event := _last(job, events, also=("FailedCreate",)):
        yield True, f"job {job['metadata']['name']}: {event['message'].removeprefix('Error creating: ')}"


def _of_pod(pod: Object, events: Sequence[Object]) -> Iterator[tuple[bool, str]]:
    """Whether something is wrong, and the reason of its first step that is not behind it."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for one in status.get("conditions", []):
        if one["type"] == "PodScheduled" and one["status"] != "True":
            event = _last(pod, events) or {}
            yield True, f"{name}: {one.get('message') or event.get('message') or one.get('reason', 'no machine yet')}"
            return
    steps = [one for one in status.get("initContainerStatuses", []) if not _is_done(one)]
    step: Object = next(iter([*steps, *status.get("containerStatuses", [])]), {"name": "", "state": {}})
    waits = step["state"].get("waiting", {})
    if ended := list(ended_words(pod)):
        yield True, ended[0]
    elif "running" in step["state"]:
        does = "it waits for model and rows" if step["name"] == "wait" else "model and rows are being made"
        yield from [(False, f"{name}: {does} ({step['name']})")] if steps or step["name"] == "prepare" else []
    elif waits and waits.get("reason") not in STARTS:
        yield True, f"{name}: {waits.get('reason', 'waits')} {waits.get('message', '')}".strip()
    elif told := _last(pod, events):
        yield True, f"{name}: {told['reason']} {told['message']}"
    elif status.get("phase", "Pending") == "Pending":
        yield False, f"{name}: {waits.get('reason', 'Pending')}"


def _is_done(container: Object) -> bool:
    return bool(container["state"].get("terminated", {}).get("exitCode") == 0)


def _last(about: Object, events: Sequence[Object], also: Sequence[str] = ()) -> Object | None:
    """The newest warning about it; FailedScheduling is left out once it has a machine."""
    name, has_machine = about["metadata"]["name"], bool(about["spec"].get("nodeName"))
    warnings = [event for event in events if event.get("involvedObject", {}).get("name") == name]
    warnings = [event for event in warnings if not also or event["reason"] in also]
    warnings = [event for event in warnings if not (has_machine and event["reason"] == "FailedScheduling")]
    return max(warnings, key=_when, default=None)


def _when(event: Object) -> str:
    times = (event.get(name) for name in ("lastTimestamp", "eventTime"))
    return str(next(filter(None, times), event.get("metadata", {}).get("creationTimestamp", "")))
