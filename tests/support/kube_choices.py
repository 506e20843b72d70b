"""What a real API server refuses of the words that Motley itself writes, for what stands in for one: choices, and which
of them go together. What a person sets is looked at by console/infra/kubernetes/check.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.infra.kubernetes import check
from console.infra.kubernetes.check import Object, containers, pod_of

CHOICES = {
    "completionMode": ("Indexed", "NonIndexed"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "action": ("FailJob", "FailIndex", "Ignore", "Count"),
    "protocol": ("TCP", "UDP", "SCTP"),
    "medium": ("", "Memory"),
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
    "status": ("True", "False", "Unknown"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
}
"""The choices of fields that mean the same wherever they stand; `operator` and `type` do not."""
FREE = ("labels", "annotations", "nodeSelector")
"""What has names of its owner's."""
OPERATORS = {"onExitCodes": ("In", "NotIn")}
TYPES = {
    "hostPath": ("", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice"),
    "seccompProfile": ("RuntimeDefault", "Unconfined", "Localhost"),
}


def wrong(entry: Object) -> list[str]:
    found = [finding for find in (choices, restarts, mounts, policies) for finding in find(entry)]
    return [*check.wrong(entry), *(f"{entry['kind']} {entry['metadata']['name']}: {finding}" for finding in found)]


def walk(value: Any, below: str = "") -> Iterator[tuple[str, str, Any]]:
    """Each field: what it is in, its name, its value; the entries of a list are in what the list is."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield below, name, inner
            yield from walk(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, below)


def choices(entry: Object) -> Iterator[str]:
    """Words of which there are a few."""
    for below, name, value in walk(entry.get("spec", {})):
        known = (
            OPERATORS.get(below) if name == "operator" else TYPES.get(below) if name == "type" else CHOICES.get(name)
        )
        for one in value if isinstance(value, list) else [value]:
            if known and below not in FREE and not isinstance(one, Mapping) and one not in known:
                yield f"{name} is {one!r}, none of {', '.join(filter(None, known))}"


def restarts(entry: Object) -> Iterator[str]:
    """A Job's pods end; who counts by index never starts one again in its place."""
    policy = (pod_of(entry) or {}).get("restartPolicy", "Always")
    if entry["kind"] == "Job":
        if policy == "Always":
            yield "restartPolicy: the pods of a Job have Never or OnFailure"
        elif policy != "Never" and "backoffLimitPerIndex" in entry["spec"]:
            yield "backoffLimitPerIndex: it needs restartPolicy: Never"


def mounts(entry: Object) -> Iterator[str]:
    volumes = {volume["name"] for volume in (pod_of(entry) or {}).get("volumes", [])}
    for volume in (pod_of(entry) or {}).get("volumes", []):
        if len(volume) != 2:
            yield f"volume {volume['name']}: it has {len(volume) - 1} sources, not one"
    for container in containers(entry):
        places = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"container {container['name']} mounts the volume {mount['name']}, which is not there"
        yield from (
            f"two volumes are mounted at {place}" for place in sorted({p for p in places if places.count(p) > 1})
        )


def policies(entry: Object) -> Iterator[str]:
    if entry["kind"] != "Job":
        return
    spec = entry["spec"]
    policy, restart = spec.get("podFailurePolicy"), (pod_of(entry) or {}).get("restartPolicy")
    if policy and restart != "Never":
        yield f"podFailurePolicy: it needs restartPolicy: Never, not {restart}"
    if policy and spec.get("podReplacementPolicy", "Failed") != "Failed":
        yield "podReplacementPolicy: beside a podFailurePolicy it is Failed"
    for rule in (policy or {}).get("rules", []):
        if len({"onExitCodes", "onPodConditions"} & rule.keys()) != 1:
            yield "podFailurePolicy: a rule has either onExitCodes or onPodConditions"
        if rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield "podFailurePolicy: FailIndex needs backoffLimitPerIndex"
        if 0 in rule.get("onExitCodes", {}).get("values", []) and rule["onExitCodes"]["operator"] == "In":
            yield "podFailurePolicy: an exit code of 0 is no failure"
    indexed = spec.get("completionMode") == "Indexed"
    for name in ("backoffLimitPerIndex", "successPolicy"):
        if name in spec and not indexed:
            yield f"{name}: it needs completionMode: Indexed"
    if indexed and "completions" not in spec:
        yield "completionMode: Indexed needs completions"
