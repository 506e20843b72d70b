"""The objects of a run, from its plan: a headless Service, a Secret, a NetworkPolicy, a ConfigMap, and an Indexed Job,
a pod a process.

Pure: plain data in, plain data out. The fields are those of the public API of Kubernetes 1.31 and newer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console import render
from console.infra.kubernetes.settings import QUEUE, Settings, amount
from train.errors import BadInput
from train.plan.launch.launch_plan import LaunchPlan, smallest

HOME, CONFIG, WORDS = "/mnt/motley", "/mnt/motley-config", "/mnt/motley-last-words"
PYTHON = ["python", "-m", "train"]
LONGEST = 45
"""The longest name of a Job: its pods' names, -prepare-xxxxx the longest end, are labels of 63 at most."""
TRIES = 100
"""How often the pod of one place may fail: machines come and go for days."""
GRACE_S = 90
"""The time that a pod has to save: more than the agent takes at most."""
AWAY_S = 20
"""The agents notice in 3 s; by itself Kubernetes waits for 300 before it deletes the pod. A new one it makes only once
somebody says that the machine is off."""
MOST_BYTES = 900_000
"""The most bytes of the files that travel in the ConfigMap, which may have 1 MiB."""
READER_S = 600
LITTLE = {"cpu": "100m", "memory": "256Mi"}
AS_THE_RUN = ("securityContext", "tolerations", "nodeSelector", "imagePullSecrets")
RUN, PART, ANNOTATED = "motley/run", "motley/part", "motley/run-name"
Object = dict[str, Any]


def name_of(run: str) -> str:
    """The objects' name: the run's own, as far as DNS takes it."""
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if plain != run or len(plain) > LONGEST - 7:
        plain = f"{plain[: LONGEST - 14].strip('-')}-{hashlib.sha256(run.encode()).hexdigest()[:6]}"
    return f"motley-{plain}"


def nodes_of(run: str, pods: int) -> dict[str, str]:
    """Name → address: pod N is NAME-N, and found below the Service."""
    name = name_of(run)
    return {f"{name}-{place}": f"{name}-{place}.{name}" for place in range(pods)}


def objects(
    plan: LaunchPlan,
    settings: Settings,
    *,
    token: str,
    launch: str,
    time: str,
    ports: Mapping[str, Any],
    hub_token: str = "",
    messages: str = "",
) -> list[Object]:
    """In the order in which they are applied. `launch` names this launch: rows of another one are not its own."""
    name = name_of(plan.run)
    more = render.checked_environment(dict(settings.environment))
    kept = {"token": token, "hub-token": hub_token, "messages": messages}
    secrets = {key: value for key, value in kept.items() if value}
    return [
        *([_claim(settings)] if settings.storage else []),
        _service(name, plan.run, settings, ports),
        _object("v1", "Secret", name, plan.run, settings) | {"type": "Opaque", "stringData": secrets},
        _policy(name, plan.run, settings),
        _object("v1", "ConfigMap", name, plan.run, settings) | {"data": files(plan, name, launch, time, ports)},
        *([_prepare_job(name, plan.run, settings, more, hub_token)] if settings.shared else []),
        _job(name, plan.run, settings, more, hub_token),
    ]


def _object(version: str, kind: str, name: str, run: str, settings: Settings) -> Object:
    meta = {
        "name": name,
        **({"namespace": settings.namespace} if settings.namespace else {}),
        "labels": {"app.kubernetes.io/name": "motley", RUN: name},
        "annotations": {ANNOTATED: run},
    }
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _claim(settings: Settings) -> Object:
    meta = {"name": settings.volume_claim, "labels": {"app.kubernetes.io/name": "motley"}}
    spec: Object = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": settings.storage}}}
    if settings.storage_class:
        spec["storageClassName"] = settings.storage_class
    meta |= {"namespace": settings.namespace} if settings.namespace else {}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def _service(name: str, run: str, settings: Settings, ports: Mapping[str, Any]) -> Object:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # agents look for each other before anything is ready
        "selector": {RUN: name, PART: "agent"},
        "ports": [{"name": "heartbeat", "port": ports["presence_port"], "protocol": "TCP"}],
    }
    return _object("v1", "Service", name, run, settings) | {"spec": spec}


def _policy(name: str, run: str, settings: Settings) -> Object:
    """The run's NetworkPolicy: only its own pods reach its pods, as torch's own exchange asks nobody who he is."""
    own_pods = {"podSelector": {"matchLabels": {RUN: name}}}
    spec = {**own_pods, "policyTypes": ["Ingress"], "ingress": [{"from": [own_pods]}]}
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, run, settings) | {"spec": spec}


# -- what the pods read ----------------------------------------------------------------------------------------------


def files(plan: LaunchPlan, name: str, launch: str, time: str, ports: Mapping[str, Any]) -> dict[str, str]:
    job = {
        "run": plan.run,
        "launch": launch,
        "prepare": f"{name}-prepare",
        "steps": steps(plan),
    }
    return {
        "job.json": json.dumps(job, indent=1) + "\n",
        "cluster_config.yaml": render.cluster_of(plan, plan.nodes[0], ports).to_text(),
        # home and rows are each pod's own, and known when the rows are made
        "training_config.yaml": render.settings_file(plan, smallest(plan), "home", "dataset").content,
        "launch.json": render.launched(plan, time).content,
        **_carried(plan),
    }


def steps(plan: LaunchPlan) -> list[list[str]]:
    """How a pod makes what the agents need, as words behind `python -m train`; the last one makes the rows."""
    model, data, tokenizer = plan.model, plan.dataset, plan.tokenizer
    if len(plan.raw_parts) > 1 or "," in str(plan.settings["dataset"]):
        fix = "fix: put them into one file, or train at home or on Slurm"
        raise BadInput("dataset: a pod takes one data set, these are several", fix=fix)
    fetches = []
    if model.folder_name:
        words = ["fetch", "--json", "--model", model.fetched_as]
        fetches.append([*words, *(["--in-4bit"] if model.in_4bit else [])])
    if tokenizer:
        fetches.append(["fetch", "--json", "--tokenizer", "--model", tokenizer.repo])
    if plan.raw and not data.file:
        fetches.append(["fetch", "--json", "--dataset", data.fetched_as])
    words = list(plan.prepare)
    if data.file:
        name = Path(data.file).name
        own = next(word for word in words if _is(word, "dataset")).rpartition(name)[2]  # what is taken of it
        words = [f"--dataset={CONFIG}/{name}{own}" if _is(word, "dataset") else word for word in words]
    for brought in filter(None, (plan.recipe, plan.template)):
        words = [word.replace(f"{brought.place}/", f"{CONFIG}/") for word in words]
    return [*fetches, words]


def _is(word: str, option: str) -> bool:
    return word.startswith(f"--{option}=")


def _carried(plan: LaunchPlan) -> dict[str, str]:
    """Files of the controller that the rows are made of."""
    files = [Path(plan.dataset.file)] if plan.dataset.file else []
    files += [Path(extra.folder, extra.name) for extra in (plan.recipe, plan.template) if extra]
    for folder, what in ((plan.model.folder, "model"), (plan.dataset.folder, "dataset")):
        if folder:
            raise BadInput(
                f"{what}: {folder} is a folder of this machine, and a pod cannot see it",
                fix="fix: a name of the hub or the catalogue",
            )
    contents = {}
    for file in files:
        if file.stat().st_size > MOST_BYTES:
            size = f"{file.stat().st_size / 1e6:.1f} MB"
            raise BadInput(
                f"{file} has {size}; what travels in a ConfigMap may have {MOST_BYTES / 1e6:.1f} MB",
                fix="fix: bring it to the hub, and name it there: --dataset YOU/NAME",
            )
        try:
            contents[file.name] = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadInput(
                f"{file} is no text: a ConfigMap cannot carry it", fix="fix: .jsonl, .json, .csv or .txt"
            ) from None
    return contents


# -- the jobs --------------------------------------------------------------------------------------------------------


def _job(name: str, run: str, settings: Settings, more: Mapping[str, Any], hub_token: str) -> Object:
    found = _object("batch/v1", "Job", name, run, settings)
    found["metadata"]["labels"] = {**settings.labels, **found["metadata"]["labels"], PART: "agent"}
    found["metadata"]["annotations"] = {**settings.annotations, **found["metadata"]["annotations"]}
    first = "wait" if settings.shared else "prepare"
    spec = {
        **({"suspend": True} if QUEUE in settings.labels else {}),  # Kueue lets it begin
        "completionMode": "Indexed",  # pod N is NAME-N, also when it is made again
        "completions": settings.pods,
        "parallelism": settings.pods,
        "backoffLimitPerIndex": TRIES,
        "podReplacementPolicy": "Failed",  # never two pods of one place at a time
        "podFailurePolicy": {
            "rules": [
                # drained, evicted, preempted, or its machine is lost: first, whatever its last exit code is
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}},  # the agent's own verdicts
            ]
        },
        # Done once an agent says so: a pod that comes back after the end finds nobody to train with.
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "template": _template(name, run, "agent", settings, more=more, hub_token=hub_token, first=first),
    }
    return found | {"spec": spec}


def _prepare_job(name: str, run: str, settings: Settings, more: Mapping[str, Any], hub_token: str) -> Object:
    spec = {"backoffLimit": 2, "template": _template(name, run, "prepare", settings, more=more, hub_token=hub_token)}
    found = _object("batch/v1", "Job", f"{name}-prepare", run, settings)
    found["metadata"]["labels"][RUN] = name  # the run's, not its own name
    return found | {"spec": spec}


def _template(
    name: str, run: str, part: str, settings: Settings, *, more: Mapping[str, Any], hub_token: str, first: str = ""
) -> Object:
    online = [{"name": "HF_TOKEN", "valueFrom": _secret(name, "hub-token")}] if hub_token else []
    making = _container("prepare", "prepare", settings, _environment(more) + online)
    waiting = _container("wait", "wait", settings, _environment(more))
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            **{"runAsUser": settings.uid, "runAsGroup": settings.uid, "fsGroup": settings.uid},
            **({"runAsNonRoot": True} if settings.uid else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [_gone("unreachable"), _gone("not-ready"), *map(dict, settings.tolerations)],
        "volumes": _volumes(name, settings),
    }
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.pull_secret:
        spec["imagePullSecrets"] = [{"name": settings.pull_secret}]
    if part == "agent":
        spec |= {"subdomain": name, "terminationGracePeriodSeconds": GRACE_S, "affinity": _apart(name)}
        spec["initContainers"] = [making if first == "prepare" else waiting]
        spec["containers"] = [_agent(name, settings, more)]
    else:
        spec["containers"] = [making]
    given = {key: value for key, value in settings.labels.items() if not key.startswith(QUEUE.partition("/")[0])}
    labels = {**given, "app.kubernetes.io/name": "motley", RUN: name, PART: part}
    annotations = {ANNOTATED: run, **(settings.annotations if part == "agent" else {})}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _gone(why: str) -> Object:
    key = f"node.kubernetes.io/{why}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY_S}


def _apart(name: str) -> Object:
    """On different machines where there are enough; a machine with two cards may take two pods."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {RUN: name, PART: "agent"}}}
    spread = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [spread]}}


def _volumes(name: str, settings: Settings) -> list[Object]:
    where: Object = {"persistentVolumeClaim": {"claimName": settings.volume_claim}}
    if settings.host_path:
        where = {"hostPath": {"path": settings.host_path, "type": "Directory"}}  # made by the kubelet it were root's
    return [
        {"name": "home", **where},
        {"name": "config", "configMap": {"name": name}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.memory}},
    ]


def _environment(more: Mapping[str, Any]) -> list[Object]:
    fixed = {
        **{
            "HOME": HOME,
            "MOTLEY_HOME": HOME,
            "MOTLEY_CONFIG": CONFIG,
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        },
        **{"HF_HUB_DISABLE_TELEMETRY": "1", "UNSLOTH_DISABLE_STATISTICS": "1"},
    }
    return [{"name": key, "value": str(value)} for key, value in {**fixed, **more}.items()]


def _secret(name: str, key: str, *, optional: bool = False) -> Object:
    return {"secretKeyRef": {"name": name, "key": key, **({"optional": True} if optional else {})}}


def _agent(name: str, settings: Settings, more: Mapping[str, Any]) -> Object:
    cores = max(1, int(amount(settings.cpu) or 1))
    offline = {"HF_HUB_OFFLINE": 1, "TRANSFORMERS_OFFLINE": 1, "OMP_NUM_THREADS": cores, "MOTLEY_LAST_WORDS": WORDS}
    environment = [
        *_environment({**offline, **more}),
        {"name": "MOTLEY_TOKEN", "valueFrom": _secret(name, "token")},
        {"name": "MOTLEY_MESSAGES", "valueFrom": _secret(name, "messages", optional=True)},
        {"name": "MOTLEY_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    found = _container("agent", "join", settings, environment)
    cards = {settings.gpu_resource: settings.gpus} if settings.gpus else {}
    found["resources"]["limits"] = {**found["resources"]["limits"], **cards, **settings.limits}
    return found | {"terminationMessagePath": WORDS}


def without_devices(limits: Mapping[str, Any]) -> Object:
    """What each container needs where a quota counts limits; cards are the agent's alone."""
    return {name: value for name, value in limits.items() if "/" not in name}


def _container(name: str, verb: str, settings: Settings, environment: list[Object]) -> Object:
    return {
        "name": name,
        "image": settings.image,
        "command": [*PYTHON, "kubernetes", verb],
        "env": environment,
        "resources": {
            "requests": {"cpu": settings.cpu, "memory": settings.memory},
            "limits": {"memory": settings.memory, **without_devices(settings.limits)},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "home", "mountPath": HOME},
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  where a worker that leaves saves first
        ],
    }


def reader_pod(name: str, job: Object, volumes: list[Object], machine: str) -> Object:
    """The pod that reads the files of a run once its own pods are over."""
    pod = job["spec"]["template"]["spec"]
    agent = pod["containers"][0]
    container = {
        "name": "files",
        "image": agent["image"],
        "command": ["python", "-c", f"import time; time.sleep({READER_S})"],
        "resources": {"requests": LITTLE, "limits": without_devices(agent["resources"]["limits"])},
        "securityContext": agent["securityContext"],
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": READER_S,
        "terminationGracePeriodSeconds": 1,
        **{name: pod[name] for name in AS_THE_RUN if name in pod},
        "containers": [container],
        "volumes": volumes,
        **({"nodeName": machine} if machine else {}),
    }
    meta: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": "motley", PART: "files"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
