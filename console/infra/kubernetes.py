"""A Kubernetes of somebody else's, by kubectl: a run is an Indexed Job there, its nodes are the Job's pods.

What a pod is asked goes there by `kubectl exec`, as it goes to a machine by ssh. The answers for the whole run are made
of the pods' and of what the Job says of itself; once the pods are over, their files are read by a pod made for that.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from console.infra.node import ROOT, Facts, Node, Silent
from console.kubernetes.objects import ANNOTATED, GRACE_S, HOME, PART, RUN
from console.processes import each_line, end_group

ALL = "app.kubernetes.io/name=motley"
OURS = f"{ALL},{PART}=agent"
ASIDE = "service,secret,networkpolicy,configmap"
"""What a run has beside its Jobs: its tokens are there."""
ASK_S = 20.0
STOP_S = GRACE_S + 30.0
LATE_S = 30.0
"""Past its grace a pod answers to no kubelet; this much for clocks that differ."""
ENDS = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""The last two stand for some seconds before the first two."""
READER_S = 600
NONE = {"run": "", "on": False, "wanted": False, "now": {}, "start": {}, "step": {}, "events": [], "members": []}
NONE |= {
    "how": "",
    "since": 0,
    "checkpoint": 0,
    "free_bytes": 1e12,
    "gpus": [],
    "processes": 0,
    "agent": 0,
    "paused": "",
}
Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class PodNode(Node):
    """One pod of a run, or the home of one by way of another."""

    kubectl: tuple[str, ...]
    pod: str
    container: str = "agent"

    python: ClassVar[str] = "python"
    answer_s: ClassVar[float] = ASK_S

    def command(self, words: Sequence[str]) -> list[str]:
        return [*self.kubectl, "exec", "-i", self.pod, "-c", self.container, "--", *words]


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesNode(Node):
    kubectl: tuple[str, ...]

    def command(self, words: Sequence[str]) -> list[str]:
        raise Silent("that is for machines of your own")

    # -- what there is -----------------------------------------------------------------------------------------------

    def kube(self, *words: str, given: str = "", timeout_s: float = ASK_S) -> str:
        command = [*self.kubectl, *words]
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=timeout_s)
        except FileNotFoundError:
            raise Silent("there is no kubectl on this machine") from None
        except subprocess.TimeoutExpired:
            raise Silent(f"kubectl gave no answer within {timeout_s:.0f} s") from None
        if done.returncode:
            raise Silent("\n".join(done.stderr.strip().splitlines()[-3:]) or f"kubectl ended with {done.returncode}")
        return done.stdout

    def listed(self, kind: str, selector: str) -> list[Object]:
        return list(json.loads(self.kube("get", kind, "-l", selector, "-o", "json"))["items"])

    def jobs(self) -> dict[str, Object]:
        """Run → its Job, the newest last."""
        found = sorted(self.listed("jobs", OURS), key=lambda job: str(job["metadata"]["creationTimestamp"]))
        return {run_of(job): job for job in found}

    def pods(self, job: Object) -> list[Object]:
        """Of each place the newest, in their order."""
        found = self.listed("pods", f"{RUN}={job['metadata']['name']},{PART}=agent")
        found.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [pod for _, pod in sorted({index_of(pod): pod for pod in found}.items())]

    def newest(self, run: str = "") -> tuple[str, Object | None]:
        jobs = self.jobs()
        chosen = run or max(jobs, key=lambda name: (rank(jobs[name]), list(jobs).index(name)), default="")
        return chosen, jobs.get(chosen)

    def node_of(self, job: Object, pod: Object) -> PodNode:
        name = str(pod["metadata"]["name"])
        place = f"{job['metadata']['name']}-{index_of(pod)}"
        return PodNode(name=place, pod=name, kubectl=self.kubectl, home=home_of(run_of(job), index_of(pod)))

    def living(self, job: Object) -> list[PodNode]:
        return [self.node_of(job, pod) for pod in self.pods(job) if is_running(pod)]

    # -- the verbs ---------------------------------------------------------------------------------------------------

    def status(self) -> Facts:
        run, job = self.newest()
        if job is None:
            return NONE | {"time": time.time()}
        pods = self.pods(job)
        found = NONE | {"time": time.time(), "run": run, **ended_facts(pods)}
        for pod in filter(is_running, pods):
            try:
                found = self.node_of(job, pod).status()
            except Silent:
                continue
            break
        active, count = is_active(job), sum(map(is_running, pods))
        how = f"job {job['metadata']['name']}, {count} of {job['spec']['completions']} pods" if active else ""
        how += f"; {lost}" if active and (lost := lost_words(pods)) else ""
        found |= {"run": run, "on": active, "wanted": active, "how": how, "gpus": []}
        if active and not count:
            found["now"] = waiting(job, pods)
        return found

    def stop(self, timeout_s: float = STOP_S) -> Facts:
        """Delete the run; of those that are over what fetch does not read. What is still there then is what is left."""
        began = time.time()
        run, job = self.newest()
        answer = {"was_on": False, "run": run, "script": "", "checkpoint": 0, "forced": 0, "ports": [], "kept": ""}
        if job is not None and not is_over(job, self.pods(job)):
            answer |= {"was_on": True, "checkpoint": self.end(run, job, began + timeout_s)}
        elif job is not None:
            answer["kept"] = f"job {job['metadata']['name']}"
        chosen = [RUN + "=" + one["metadata"]["name"] for one in self.jobs().values() if is_over(one)]
        for selector in dict.fromkeys([*chosen, *([f"{RUN}={job['metadata']['name']}"] if job else [])]):
            self.kube("delete", f"job,{ASIDE}", "-l", f"{selector},{PART}!=agent", "--ignore-not-found")
        selector = f"{RUN}={job['metadata']['name']}" if job else ALL
        kinds = f"job,{ASIDE}" if answer["kept"] else f"job,pod,{ASIDE}"
        more = f",{PART}!=agent" if answer["kept"] else ""
        left = self.kube("get", kinds, "-l", selector + more, "-o", "name").split()
        stuck = lost_words(self.listed("pods", selector)) if left else ""
        return answer | {"left": left, "stuck": stuck, "seconds": round(time.time() - began, 2)}

    def end(self, run: str, job: Object, until: float) -> int:
        """Its agents save within their grace period. What is listened to meanwhile says how far."""
        selector, saved = f"{RUN}={job['metadata']['name']}", Saved()
        with saved.heard([node.events(run) for node in self.living(job)[:3]]):
            self.kube("delete", "job", "-l", selector, "--cascade=foreground", "--wait=false")
            while (left := self.listed("jobs,pods", selector)) and time.time() < until:
                pods = [one for one in left if one["kind"] == "Pod"]
                if pods and all(map(is_lost, pods)):
                    break
                time.sleep(0.5)
        return saved.step

    def parts(self, run: str) -> list[Node]:
        """The pods, or once they are over what they have left on the volume."""
        try:
            run, job = self.newest(run)
            if job is None:
                return [self]
            pods = self.pods(job)
            if not is_over(job, pods):
                return list(self.living(job)) or [self]
            return list(readers(self, job, pods)) or [self]
        except Silent:
            return [self]

    def files(self, run: str) -> Facts:
        raise Silent("no pod of it is there (a run that was stopped is continued by launching it again by its name)")

    def events(self, run: str) -> subprocess.Popen[bytes]:
        about = json.dumps({"name": self.name, "kubectl": self.kubectl, "run": run})
        return subprocess.Popen(
            [sys.executable, "-m", "console.infra.kubernetes_report", about],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=ROOT,
        )

    def events_after(self, run: str, offset: int) -> subprocess.Popen[bytes]:
        _, job = self.newest(run)
        for node in self.living(job) if job else []:
            return node.events_after(run, offset)
        raise Silent("no pod of it is running")

    def logs(self, lines: int, *, follow: bool) -> subprocess.Popen[bytes]:
        _, job = self.newest()
        if job is None:
            raise Silent("there is no run")
        chosen = f"{RUN}={job['metadata']['name']},{PART}=agent"
        more = ["-f"] if follow else []
        words = ["logs", "-l", chosen, "-c", "agent", "--prefix", f"--tail={lines}", "--max-log-requests=1000", *more]
        return subprocess.Popen(
            [*self.kubectl, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )

    def runs(self) -> Facts:
        found, on = {}, ""
        for run, job in self.jobs().items():
            on = run if is_active(job) else on
            pods = self.pods(job)
            facts = ended_facts(pods)
            step = facts.get("step", {})
            known = {"step": step.get("step", 0), "steps": 0, "loss": step.get("loss"), "time": step.get("time", 0)}
            found[run] = {**known, "script": "", "checkpoint": 0, "bytes": 0, "model": ""}
            for node in self.living(job)[:1]:
                with suppress(Silent):  # it has just ended
                    found[run] |= node.runs()["runs"].get(run, {})
            found[run]["done"] = has(job, "Complete") or has(job, "SuccessCriteriaMet")
        return {"runs": found, "on": on}

    def forget_address(self) -> Facts:
        return {"was": False}

    def clean(self, names: list[str]) -> Facts:
        raise Silent("checkpoints lie on its volume; kubectl deletes that")


class Saved:
    """The newest step that the pods say is saved."""

    def __init__(self) -> None:
        self.step = 0

    @contextmanager
    def heard(self, streams: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
        threads = [each_line(stream, self._take) for stream in streams]
        try:
            yield
        finally:
            for stream, thread in zip(streams, threads, strict=True):
                end_group(stream)
                thread.join(1.0)

    def _take(self, line: bytes) -> None:
        kind, _, text = line.partition(b" ")
        with suppress(ValueError):
            event = json.loads(text)
            if kind == b"event" and event.get("event") in ("checkpoint", "stopped"):
                self.step = max(self.step, int(event.get("step", 0)))


# -- what kubectl shows ----------------------------------------------------------------------------------------------


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
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def is_over(job: Object, pods: Sequence[Object] = ()) -> bool:
    """By itself: a pod that has done the run is seen before its Job is."""
    done = any(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)
    return done or any(has(job, kind) for kind in ENDS)


def is_active(job: Object) -> bool:
    return not (is_over(job) or "deletionTimestamp" in job["metadata"])


def rank(job: Object) -> int:
    """The run that is meant where none is named: one that runs, else one that waits, else one that is leaving."""
    if is_over(job):
        return 0
    waits = 2 if job["spec"].get("suspend") or not job.get("status", {}).get("ready") else 3
    return waits if is_active(job) else 1


def is_running(pod: Object) -> bool:
    """Its agent, not what runs before it."""
    states = pod.get("status", {}).get("containerStatuses", [])
    running = pod.get("status", {}).get("phase") == "Running" and any("running" in one["state"] for one in states)
    return running and not is_lost(pod)


def is_lost(pod: Object) -> bool:
    """Past its grace, and no kubelet says that it has ended: its machine is gone."""
    told = str(pod["metadata"].get("deletionTimestamp", ""))  # the end of its grace, not its begin
    return bool(told) and time.time() > datetime.fromisoformat(told).timestamp() + LATE_S


def lost_words(pods: Sequence[Object]) -> str:
    """Kubernetes makes such a pod again once its machine is known to be off; only a person knows that."""
    lost = [pod for pod in pods if is_lost(pod)]
    names = " ".join(str(pod["metadata"]["name"]) for pod in lost)
    machines = ", ".join(dict.fromkeys(str(pod["spec"].get("nodeName", "?")) for pod in lost))
    return f"machine {machines} does not answer; if it is off: kubectl delete pod --force {names}" if lost else ""


def last_words(pods: Sequence[Object]) -> list[tuple[str, Facts]]:
    """What the agents have left when they ended, as their event logs have it."""
    found = []
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            said = container["state"].get("terminated", {}).get("message", "")
            for line in said.splitlines():
                kind, _, text = line.partition(" ")
                try:
                    found.append((kind, dict(json.loads(text))))
                except ValueError:
                    continue
    return found


def ended_facts(pods: Sequence[Object]) -> Facts:
    words = last_words(pods)
    events = [event for kind, event in words if kind == "event"]
    steps = [event for event in events if event["event"] == "step"]
    last = max(steps, key=lambda event: int(event["step"]), default={})
    members = [event for kind, event in words if kind == "member"]
    return {"step": last, "events": [event for event in events if event["event"] != "step"][-1:], "members": members}


def why_ended(job: Object) -> str:
    conditions = job.get("status", {}).get("conditions", [])
    return next((one.get("message", "") for one in conditions if one["type"] == "Failed"), "")


def waiting(job: Object, pods: Sequence[Object]) -> Facts:
    """What a run waits for that has no agent yet."""
    reason = "its pods are not there yet"
    if job["spec"].get("suspend"):
        reason = (
            'the Job is suspended: a queue lets it begin, or kubectl patch job … -p \'{"spec": {"suspend": false}}\''
        )
    for pod in pods:
        status, name = pod.get("status", {}), pod["metadata"]["name"]
        for one in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
            why = one["state"].get("waiting", {})
            if why and why.get("reason") != "PodInitializing":
                reason = f"{name}: {why.get('reason', 'waits')} {why.get('message', '')}".strip()
            elif "running" in one["state"]:
                reason = f"{name}: model and rows are being made ({one['name']})"
        for one in status.get("conditions", []):
            if one["type"] == "PodScheduled" and one["status"] != "True":
                reason = f"{name}: {one.get('message', one.get('reason', 'it has no machine yet'))}"
    return {"time": time.time(), "state": "waiting", "reason": reason, "peers": {}}


# -- after the end ---------------------------------------------------------------------------------------------------


def readers(node: KubernetesNode, job: Object, pods: Sequence[Object]) -> list[PodNode]:
    """The homes of a run that is over, by a pod on the volume, or by one on each machine where they lie."""
    volumes = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "home"]
    on_machines = "hostPath" in volumes[0]
    found = []
    for number, pod in enumerate(pods):
        name = f"{job['metadata']['name']}-files" + (f"-{index_of(pod)}" if on_machines else "")
        if number == 0 or on_machines:
            reader = reader_pod(name, job, volumes, pod["spec"].get("nodeName", "") if on_machines else "")
            node.kube("delete", "pod", name, "--ignore-not-found")
            node.kube("apply", "-f", "-", given=json.dumps(reader))
            atexit.register(gone, node, name)
            node.kube("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout_s=70)
        place = f"{job['metadata']['name']}-{index_of(pod)}"
        home = home_of(run_of(job), index_of(pod))
        found.append(PodNode(name=place, pod=name, container="files", kubectl=node.kubectl, home=home))
    return found


def gone(node: KubernetesNode, name: str) -> None:
    node.kube("delete", "pod", name, "--ignore-not-found", "--wait=false")


def reader_pod(name: str, job: Object, volumes: list[Object], machine: str) -> Object:
    pod = job["spec"]["template"]["spec"]
    agent = pod["containers"][0]
    container = {
        "name": "files",
        "image": agent["image"],
        "command": ["python", "-c", f"import time; time.sleep({READER_S})"],
        "securityContext": agent["securityContext"],
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": READER_S,
        "terminationGracePeriodSeconds": 1,
        "securityContext": pod["securityContext"],
        "containers": [container],
        "volumes": volumes,
        **({"nodeName": machine} if machine else {}),
        **({"imagePullSecrets": pod["imagePullSecrets"]} if "imagePullSecrets" in pod else {}),
    }
    meta: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": "motley", PART: "files"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def kubectl_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    context, namespace = (str(values.get(f"motley_kubernetes_{name}") or "") for name in ("context", "namespace"))
    more = [f"--context={context}"] if context else []
    return ("kubectl", *more, *([f"--namespace={namespace}"] if namespace else []))
