"""The fields of the public Kubernetes API that a run uses, with their types. A field that is not here is refused, as an
API server refuses one that it does not know. What types do not say is in check.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.kubernetes.settings import amount

TEXT, NUMBER, SWITCH, QUANTITY, WORDS = "a text", "a whole number", "true or false", "a quantity", "a mapping of texts"
QUANTITIES = "a mapping of quantities"
Schema = str | list[Any] | dict[str, Any]
"""A type, a list of one, or an object: field → type; one that must be there ends with an exclamation mark."""

META = {"name!": TEXT, "namespace": TEXT, "labels": WORDS, "annotations": WORDS}
KEY = {"name!": TEXT, "key!": TEXT}
ENV = {
    "name!": TEXT,
    "value": TEXT,
    "valueFrom": {"secretKeyRef": KEY, "fieldRef": {"fieldPath!": TEXT}},
}
CONTAINER = {
    "name!": TEXT,
    "image!": TEXT,
    "command": [TEXT],
    "env": [ENV],
    "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "securityContext": {"allowPrivilegeEscalation": SWITCH, "capabilities": {"drop": [TEXT]}},
    "volumeMounts": [{"name!": TEXT, "mountPath!": TEXT, "readOnly": SWITCH}],
    "terminationMessagePath": TEXT,
    "terminationMessagePolicy": TEXT,
}
TERM = {"topologyKey!": TEXT, "labelSelector": {"matchLabels": WORDS}}
VOLUME = {
    "name!": TEXT,
    "configMap": {"name!": TEXT},
    "emptyDir": {"medium": TEXT, "sizeLimit": QUANTITY},
    "hostPath": {"path!": TEXT, "type": TEXT},
    "persistentVolumeClaim": {"claimName!": TEXT},
}
POD = {
    "restartPolicy": TEXT,
    "automountServiceAccountToken": SWITCH,
    "subdomain": TEXT,
    "terminationGracePeriodSeconds": NUMBER,
    "nodeName": TEXT,
    "activeDeadlineSeconds": NUMBER,
    "nodeSelector": WORDS,
    "imagePullSecrets": [{"name!": TEXT}],
    "securityContext": {
        **{"runAsUser": NUMBER, "runAsGroup": NUMBER, "fsGroup": NUMBER, "runAsNonRoot": SWITCH},
        "seccompProfile": {"type!": TEXT},
    },
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight!": NUMBER, "podAffinityTerm!": TERM}]
        }
    },
    "tolerations": [
        {"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT, "tolerationSeconds": NUMBER},
    ],
    "initContainers": [CONTAINER],
    "containers!": [CONTAINER],
    "volumes": [VOLUME],
}
RULE = {
    "action!": TEXT,
    "onExitCodes": {"containerName": TEXT, "operator!": TEXT, "values!": [NUMBER]},
    "onPodConditions": [{"type!": TEXT, "status": TEXT}],
}
JOB = {
    "suspend": SWITCH,
    "completionMode": TEXT,
    **dict.fromkeys(("completions", "parallelism", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"), NUMBER),
    "podReplacementPolicy": TEXT,
    "podFailurePolicy": {"rules!": [RULE]},
    "successPolicy": {"rules!": [{"succeededCount": NUMBER, "succeededIndexes": TEXT}]},
    "template!": {"metadata": {"labels": WORDS, "annotations": WORDS}, "spec!": POD},
}
SERVICE = {
    "clusterIP": TEXT,
    "publishNotReadyAddresses": SWITCH,
    "selector": WORDS,
    "ports": [{"name": TEXT, "port!": NUMBER, "protocol": TEXT}],
}
PODS = {"podSelector!": {"matchLabels": WORDS}}
POLICY = {**PODS, "policyTypes": [TEXT], "ingress": [{"from": [PODS]}]}
CLAIM = {
    "accessModes!": [TEXT],
    "storageClassName": TEXT,
    "resources!": {"requests!": QUANTITIES},
}
KINDS: dict[tuple[str, str], dict[str, Any]] = {
    ("v1", "Service"): {"spec!": SERVICE},
    ("v1", "Secret"): {"type": TEXT, "stringData": WORDS},
    ("v1", "ConfigMap"): {"data": WORDS},
    ("v1", "PersistentVolumeClaim"): {"spec!": CLAIM},
    ("v1", "Pod"): {"spec!": POD},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"spec!": POLICY},
    ("batch/v1", "Job"): {"spec!": JOB},
}
TYPES: dict[str, Any] = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: lambda value: isinstance(value, int) and not isinstance(value, bool),
    SWITCH: lambda value: isinstance(value, bool),
    QUANTITY: lambda value: not isinstance(value, bool) and amount(value) is not None,
    WORDS: lambda value: isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()),
    QUANTITIES: lambda value: isinstance(value, Mapping) and all(TYPES[QUANTITY](one) for one in value.values()),
}


def wrong(entry: Mapping[str, Any]) -> list[str]:
    """Of one object: each field that is unknown, missing or of another type."""
    kind = (entry.get("apiVersion", ""), entry.get("kind", ""))
    if kind not in KINDS:
        return [f"{' '.join(map(str, kind)).strip() or 'no kind'}: no kind of object that a run has"]
    whole = {"apiVersion!": TEXT, "kind!": TEXT, "metadata!": META, **KINDS[kind]}
    return list(_wrong(entry, whole, kind[1]))


def _wrong(value: Any, schema: Schema, where: str) -> Iterator[str]:
    if isinstance(schema, str):
        if not TYPES[schema](value):
            yield f"{where}: {value!r} is not {schema}"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is not a list"
            return
        for number, one in enumerate(value):
            yield from _wrong(one, schema[0], f"{where}[{number}]")
    elif not isinstance(value, Mapping):
        yield f"{where}: {value!r} is not a mapping"
    else:
        known = {name.rstrip("!"): (name.endswith("!"), inner) for name, inner in schema.items()}
        yield from (f"{where}.{name}: there is no such field" for name in value if name not in known)
        for name, (needed, inner) in known.items():
            if name in value:
                yield from _wrong(value[name], inner, f"{where}.{name}")
            elif needed:
                yield f"{where}.{name}: it is missing"
