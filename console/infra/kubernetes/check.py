"""What an API server refuses of what a person sets (names, limits, tolerations), looked for before anything is sent to
one. Its dry run sees the rest; that what we render has the API's fields and types, and that its words fit together, is
a matter of tests (tests/support/kube_models.py, kube_choices.py)."""

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
TOLERATIONS = {"operator": ("Exists", "Equal"), "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute")}
Object = Mapping[str, Any]


def refuse(objects: Iterable[Object]) -> None:
    """BadInput with everything that is wrong with them."""
    if findings := [finding for entry in objects for finding in wrong(entry)]:
        raise BadInput(
            "\n".join(f"Kubernetes would refuse {finding}" for finding in findings),
            fix="fix: motley_kubernetes_… in inventory/kubernetes/hosts.yml; docs/elsewhere.md has an example",
        )


def wrong(entry: Object) -> list[str]:
    checks = (tolerations, names, limits)
    return [f"{entry['kind']} {entry['metadata']['name']}: {finding}" for check in checks for finding in check(entry)]


def pod_of(entry: Object) -> Object | None:
    spec = entry.get("spec", {})
    pod: Object | None = spec if entry["kind"] == "Pod" else spec.get("template", {}).get("spec")
    return pod


def containers(entry: Object) -> list[Object]:
    pod = pod_of(entry) or {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def tolerations(entry: Object) -> Iterator[str]:
    """Words of which there are a few."""
    for toleration in (pod_of(entry) or {}).get("tolerations", []):
        for name, known in TOLERATIONS.items():
            if name in toleration and toleration[name] not in known:
                yield f"{name} is {toleration[name]!r}, none of {', '.join(known)}"


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
