"""The pod that reads the files of a run once its own pods are over."""

from __future__ import annotations

from typing import Any

from console.infra.kubernetes.objects import HOME, PART, without_devices

READER_S = 600
LITTLE = {"cpu": "100m", "memory": "256Mi"}
AS_THE_RUN = ("securityContext", "tolerations", "nodeSelector", "imagePullSecrets")
Object = dict[str, Any]


def reader_pod(name: str, job: Object, volumes: list[Object], machine: str) -> Object:
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
