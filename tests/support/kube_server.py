"""A run on Kubernetes as a real API server (1.36) keeps it, and what that answers to kubectl's get and delete."""

from __future__ import annotations

import json
from typing import Any

from console.infra.kubernetes import objects
from console.infra.kubernetes.node import KubernetesNode
from console.infra.kubernetes.settings import read
from console.infra.node import Silent
from console.run_commands import stop_lines
from plugins.module_utils.motley.node_replies import Stopped
from tests.support.kube_rules import selects
from tests.support.plans import launch_plan, node
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.settings.request import HELP

IMAGE = f"registry.example.org/motley@sha256:{'0' * 64}"
PORTS = {"presence_port": 29400, "group_ports": [29410, 29489]}
VOLUME = {"storage": "100Gi", "gpu_type": "RTX 3090"}
NODE = KubernetesNode(name="kubernetes", home="", kubectl=("kubectl",))


def plan_of(run: str = "qa", **changes: Any) -> LaunchPlan:
    nodes = [
        node(name, address=address, device="cuda", home=objects.HOME)
        for name, address in objects.nodes_of(run, 3).items()
    ]
    settings = {"recipe": "sft", "model": "tiny", "dataset": "stdlib-qa", "max_steps": 8}
    return launch_plan(settings, run=run, nodes=nodes, help=HELP, **changes)


def made(run: str = "qa", plan: LaunchPlan | None = None, **asked: Any) -> list[dict[str, Any]]:
    wanted = {"image": IMAGE, "pods": 3, **(asked or VOLUME)}
    settings = read({f"motley_kubernetes_{name}": value for name, value in wanted.items()})
    return objects.objects(plan or plan_of(run), settings, token="t", launch="l", time="", ports=PORTS)


def job_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return next(entry for entry in entries if entry["kind"] == "Job" and "completionMode" in entry["spec"])


def stopped(node: KubernetesNode = NODE) -> tuple[Stopped, str]:
    """The answer, and what a person reads of it."""
    answer = node.stop(timeout_s=2)
    return answer, stop_lines([node.name], {node.name: answer}, {})[1]


class Server:
    def __init__(self, run: str = "qa", *, began: str = "2026-11-25T23:22:00Z", **asked: Any) -> None:
        self.objects = [one for one in made(run, **(asked or VOLUME)) if one["kind"] != "PersistentVolumeClaim"]
        self.events: list[dict[str, Any]] = []
        for job in self.jobs():
            job["metadata"]["creationTimestamp"], job["status"] = began, {}
            for index in range(job["spec"].get("completions", 1)):
                self.create(job, index)

    def jobs(self) -> list[dict[str, Any]]:
        return [one for one in self.objects if one["kind"] == "Job"]

    def ends(self, kind: str, message: str = "", *, which: int = -1) -> None:
        """The Job, as its controller says it; `which` 0: the one that prepares."""
        condition = {"type": kind, "status": "True", "message": message}
        self.jobs()[which]["status"] = {"conditions": [condition]}

    def pods(self, part: str = "agent") -> list[dict[str, Any]]:
        pods = [one for one in self.objects if one["kind"] == "Pod"]
        return [one for one in pods if one["metadata"]["labels"]["motley/part"] == part]

    def create(self, job: dict[str, Any], index: int) -> None:
        template = json.loads(json.dumps(job["spec"]["template"]))
        meta = template["metadata"] | {"name": f"{job['metadata']['name']}-{index}-x1y2z", "job": job}
        meta["annotations"] |= {"batch.kubernetes.io/job-completion-index": str(index)}
        meta["creationTimestamp"] = job["metadata"]["creationTimestamp"]
        states = {"containerStatuses": [{"name": "agent", "state": {"running": {}}}]}
        status = {"phase": "Running", **states}
        self.objects.append({"kind": "Pod", "metadata": meta, "spec": template["spec"], "status": status})

    def add(self, other: Server) -> Server:
        self.objects += other.objects
        return self

    def __call__(self, verb: str, kinds: str, *words: str, **__: Any) -> str:
        if kinds == "events":
            return json.dumps({"items": self.events})
        chosen = [one for one in self.objects if self.is_meant(one, kinds.split(","), list(words))]
        if verb == "delete":
            for one in chosen:
                self.delete(one)
            if "--wait=false" not in words and any(left is one for left in self.objects for one in chosen):
                raise Silent("kubectl gave no answer within 20 s")
            return ""
        assert verb == "get", verb
        found = [self.as_json(one) for one in chosen]
        if words[-1] == "name":
            return "\n".join(f"{one['kind'].lower()}/{one['metadata']['name']}" for one in found)
        return json.dumps({"items": found})

    def as_json(self, one: dict[str, Any]) -> dict[str, Any]:
        return one | {"metadata": {key: value for key, value in one["metadata"].items() if key != "job"}}

    def is_meant(self, one: dict[str, Any], kinds: list[str], words: list[str]) -> bool:
        selector = words[words.index("-l") + 1] if "-l" in words else ""
        named = [] if selector else [word for word in words if not word.startswith("-")]
        right = one["kind"].lower() in {kind.removesuffix("s") for kind in kinds}
        fits = selects(selector, one["metadata"].get("labels", {}))
        return right and fits and (not named or one["metadata"]["name"] in named)

    def delete(self, one: dict[str, Any]) -> None:
        pods = [pod for pod in self.objects if pod["kind"] == "Pod" and pod["metadata"]["job"] is one]
        stay = [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
        gone = [one, *pods] if not stay else [pod for pod in pods if pod not in stay]
        one["metadata"]["deletionTimestamp"] = "2026-11-25T23:26:00Z"
        self.objects = [left for left in self.objects if not any(left is each for each in gone)]

    def left(self) -> list[str]:
        return [f"{one['kind']} {one['metadata']['name']}" for one in self.objects]
