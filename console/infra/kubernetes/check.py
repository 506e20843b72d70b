"""What an API server refuses of names, limits and choices, looked for before anything is sent to one. Its dry run sees
the rest; that what we render has the API's fields and types is a matter of tests (tests/support/kube_models.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from console.infra.kubernetes.settings import amount
from train.errors import BadInput

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
FILE = re.compile(r"[-._a-zA-Z0-9]{1,253}")
CHOICES = {
    "completionMode": ("Indexed", "NonIndexed"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "action": ("FailJob", "FailIndex", "Ignore", "Count"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "protocol": ("TCP", "UDP", "SCTP"),
    "medium": ("", "Memory"),
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
    "status": ("True", "False", "Unknown"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
}
"""The choices of fields that mean the same wherever they stand; `operator` and `type` do not."""
OPERATORS = {"tolerations": ("Exists", "Equal"), "onExitCodes": ("In", "NotIn")}
TYPES = {
    "hostPath": ("", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice"),
    "seccompProfile": ("RuntimeDefault", "Unconfined", "Localhost"),
}
Object = Mapping[str, Any]


def refuse(objects: Iterable[Object]) -> None:
    """BadInput with everything that is wrong with them."""
    if findings := [finding for entry in objects for finding in wrong(entry)]:
        raise BadInput(
            "\n".join(f"Kubernetes would refuse {finding}" for finding in findings),
            fix="fix: motley_kubernetes_… in inventory/kubernetes/hosts.yml; docs/elsewhere.md has an example",
        )


def wrong(entry: Object) -> list[str]:
    checks = (choices, restarts, mounts, names, limits, policies)
    return [f"{entry['kind']} {entry['metadata']['name']}: {finding}" for check in checks for finding in check(entry)]


def pod_of(entry: Object) -> Object | None:
    spec = entry.get("spec", {})
    found: Object | None = spec if entry["kind"] == "Pod" else spec.get("template", {}).get("spec")
    return found


def containers(entry: Object) -> list[Object]:
    pod = pod_of(entry) or {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


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
            if known and not isinstance(one, Mapping) and one not in known:
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


def names(entry: Object) -> Iterator[str]:
    meta, pod = entry["metadata"], pod_of(entry) or {}
    rule = {"Service": SERVICE_NAME, "Job": LABEL}.get(entry["kind"], DOMAIN)
    labels = [meta["namespace"]] if "namespace" in meta else []
    labels += [pod["subdomain"]] if "subdomain" in pod else []
    labels += [part["name"] for part in (*containers(entry), *pod.get("volumes", []))]
    if not rule.fullmatch(meta["name"]):
        yield f"its name is none of DNS (RFC 1123): small letters, digits and dashes, 63 at most: {meta['name']!r}"
    yield from (f"{name!r} is no label of DNS (RFC 1123)" for name in labels if not LABEL.fullmatch(name))
    if entry["kind"] == "Job" and entry["spec"].get("completionMode") == "Indexed":
        last = f"{meta['name']}-{entry['spec'].get('completions', 1) - 1}"
        if not LABEL.fullmatch(last):
            yield f"its last pod would be called {last}, which is longer than 63"
    for container in containers(entry):
        wrong_names = [one["name"] for one in container.get("env", []) if not VARIABLE.fullmatch(one["name"])]
        yield from (f"{name!r} cannot name a variable" for name in wrong_names)
    yield from (f"{name!r} cannot name a file" for name in entry.get("data", {}) if not FILE.fullmatch(name))
    metas = [meta, entry.get("spec", {}).get("template", {}).get("metadata", {})]
    for key, value in [pair for one in metas for pair in one.get("labels", {}).items()]:
        yield from _label(key, value)
    for key in [key for one in metas for key in one.get("annotations", {})]:
        yield from _label(key, "")
    for key, value in pod.get("nodeSelector", {}).items():
        yield from _label(key, value)


def _label(key: str, value: str) -> Iterator[str]:
    domain, slash, word = key.rpartition("/")
    if (slash and not DOMAIN.fullmatch(domain)) or not WORD.fullmatch(word):
        yield f"{key!r} is no key of a label: DOMAIN/WORD"
    if value and not WORD.fullmatch(value):
        yield f"label {key}: {value!r} is no value: letters, digits, dots, dashes and underscores, 63 at most"


def limits(entry: Object) -> Iterator[str]:
    """A request above its limit; a device in parts."""
    for container in containers(entry):
        resources = container.get("resources", {})
        asked, most = resources.get("requests", {}), resources.get("limits", {})
        for name, value in asked.items():
            if name in most and (amount(value) or 0) > (amount(most[name]) or 0):
                yield f"container {container['name']}: its limit of {name}, {most[name]}, is below its request, {value}"
        for name, value in {**asked, **most}.items():
            if "/" in name and (amount(value) or 0) % 1:
                yield f"container {container['name']}: {name} is {value}, and can only be whole"


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
