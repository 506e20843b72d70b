"""Which rights a call of kubectl takes, as the audit log of a real API server (1.36) showed those of kubectl 1.32, and
whether the Role of examples/ gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

ROLE = Path(__file__).parents[2] / "examples/kubernetes-role.yml"
RESOURCES = {
    **{"job": "jobs", "pod": "pods", "service": "services", "secret": "secrets", "configmap": "configmaps"},
    **{"networkpolicy": "networkpolicies", "persistentvolumeclaim": "persistentvolumeclaims", "event": "events"},
}
GROUPS = {"jobs": "batch", "networkpolicies": "networking.k8s.io"}
Right = tuple[str, str]
"""A verb and a resource, such as ("list", "pods")."""
ALWAYS: dict[str, set[Right]] = {
    "config": set(),
    "exec": {("get", "pods"), ("create", "pods/exec"), ("get", "pods/exec")},
    "logs": {("list", "pods"), ("get", "pods"), ("get", "pods/log")},
    "wait": {("get", "pods"), ("list", "pods"), ("watch", "pods")},
}


def given() -> set[Right]:
    found = set()
    for rule in yaml.safe_load(ROLE.read_text())["rules"]:
        for resource in rule["resources"]:
            assert rule["apiGroups"] == [GROUPS.get(resource, "")], resource
            found |= {(verb, resource) for verb in rule["verbs"]}
    return found


def needed(words: Sequence[str], text: str = "") -> set[Right]:
    """`words` behind kubectl and its options; `text` what is applied."""
    verb, *rest = words
    if verb == "apply":
        kinds = [RESOURCES[entry["kind"].lower()] for entry in yaml.safe_load_all(text)]
        return {(one, kind) for kind in kinds for one in ("get", "create", "patch")}
    if verb in ALWAYS:
        return ALWAYS[verb]
    kinds = [RESOURCES[kind.removesuffix("s")] for kind in rest[0].split(",")]
    if verb == "get":
        return {("list", kind) for kind in kinds}
    assert verb == "delete", verb
    waits = () if "--wait=false" in rest else ("watch",)
    return {(one, kind) for kind in kinds for one in ("list", "delete", *waits)}


def lacking(words: Sequence[str], text: str = "") -> str:
    """As the server says it; empty where all is given."""
    for verb, resource in sorted(needed(words, text) - given()):
        why = f'User "anna" cannot {verb} resource "{resource}" in API group "{GROUPS.get(resource, "")}"'
        return f'Error from server (Forbidden): {resource} is forbidden: {why} in the namespace "ml"'
    return ""
