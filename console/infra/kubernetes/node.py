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
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from console.infra.kubernetes import kubectl, waiting
from console.infra.kubernetes.objects import GRACE_S, PART, RUN, reader_pod
from console.infra.kubernetes.shown import (
    LATE_S,
    WAITS,
    Object,
    begun_step,
    ended_facts,
    has,
    home_of,
    index_of,
    is_active,
    is_lost,
    is_over,
    is_running,
    lost_words,
    rank,
    run_of,
)
from console.infra.node import ROOT, Node, Silent
from console.processes import each_line, end_group
from plugins.module_utils.motley.node_replies import Hashes, Look, RunFacts, Runs, Stopped
from train.send_notice import Notice, send

ALL = "app.kubernetes.io/name=motley"
OURS = f"{ALL},{PART}=agent"
ASIDE = "service,secret,networkpolicy,configmap"
"""What a run has beside its Jobs: its tokens are there."""
ASK_S = 20.0
STOP_S = GRACE_S + LATE_S + 15.0
"""A pod that is lost shows as lost within it."""
NONE: Look = {
    "time": 0.0,
    "run": "",
    "on": False,
    "wanted": False,
    "now": {},
    "start": {},
    "step": {},
    "events": [],
    "members": [],
    "how": "",
    "since": 0,
    "checkpoint": 0,
    "free_bytes": None,
    "gpus": [],
    "processes": 0,
    "agent": 0,
    "paused": "",
}


def node(name: str, values: Mapping[str, Any], state: str) -> Node:
    return KubernetesNode(name=name, home="", kubectl=kubectl_of(values))


def selector_of(job: Object) -> str:
    """What all objects of a Job's run have in common, for kubectl."""
    return f"{RUN}={job['metadata']['name']}"


def kubectl_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    context, namespace = (str(values.get(f"motley_kubernetes_{name}") or "") for name in ("context", "namespace"))
    more = [f"--context={context}"] if context else []
    return ("kubectl", *more, *([f"--namespace={namespace}"] if namespace else []))


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

    def why(self, words: list[str]) -> str:
        said = kubectl.why("\n".join(words)).splitlines()
        return Node.why(self, [line for line in said if not line.startswith("command terminated with")])


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesNode(Node):
    kubectl: tuple[str, ...]
    mute: str = ""
    """Why nothing of a run can be read."""

    def command(self, words: Sequence[str]) -> list[str]:
        raise Silent("that is for machines of your own")

    @property
    def program(self) -> str:
        """The kubectl command as a person types it."""
        return " ".join(self.kubectl)

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
            raise Silent(kubectl.why(done.stderr) or f"kubectl ended with {done.returncode}")
        return done.stdout

    def listed(self, kind: str, selector: str) -> list[Object]:
        return list(json.loads(self.kube("get", kind, "-l", selector, "-o", "json"))["items"])

    def jobs(self) -> dict[str, Object]:
        """Run → its Job, the newest last."""
        oldest_first = sorted(self.listed("jobs", OURS), key=lambda job: str(job["metadata"]["creationTimestamp"]))
        return {run_of(job): job for job in oldest_first}

    def pods(self, job: Object) -> list[Object]:
        """The newest pod of each place of a Job, in the order of the places."""
        pods = self.listed("pods", f"{selector_of(job)},{PART}=agent")
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return [pod for _, pod in sorted({index_of(pod): pod for pod in pods}.items())]

    def newest(self, run: str = "") -> tuple[str, Object | None]:
        jobs = self.jobs()
        chosen = run or max(reversed(jobs), key=lambda name: rank(jobs[name]), default="")  # of equals the newest
        return chosen, jobs.get(chosen)

    def node_of(self, job: Object, pod: Object) -> PodNode:
        name = str(pod["metadata"]["name"])
        place = f"{job['metadata']['name']}-{index_of(pod)}"
        return PodNode(name=place, pod=name, kubectl=self.kubectl, home=home_of(run_of(job), index_of(pod)))

    def living(self, job: Object) -> list[PodNode]:
        return [self.node_of(job, pod) for pod in self.pods(job) if is_running(pod)]

    def lost(self, pods: Sequence[Object]) -> str:
        return lost_words(pods, self.program)

    def others(self, run: str) -> str:
        """The runs that go on or wait beside this one."""
        active = {name: job for name, job in self.jobs().items() if name != run and is_active(job)}
        return ", ".join(f"{name} (suspended)" if job["spec"].get("suspend") else name for name, job in active.items())

    def waits_for(self, job: Object, pods: list[Object]) -> str:
        """Why it has not all its agents; who may see no events is told so."""
        if lost := self.lost(pods):
            return lost
        beside = self.listed("jobs,pods", f"{selector_of(job)},{PART}!=agent")
        reason = partial(waiting.reason, job, pods, beside, program=self.program)
        try:
            warnings = json.loads(self.kube("get", "events", "--field-selector", "type=Warning", "-o", "json"))
        except Silent as why:
            return reason() or f"{waiting.NOT_YET}; why is not to be seen: {why}"
        return reason(warnings["items"])

    # -- the verbs ---------------------------------------------------------------------------------------------------

    def status(self) -> Look:
        run, job = self.newest()
        if job is None:
            return {**NONE, "time": time.time()}
        pods = self.pods(job)
        found: Look = {**NONE, "time": time.time(), "run": run, **ended_facts(job, pods)}
        unseen = ""
        for pod in filter(is_running, pods):
            try:
                found = self.node_of(job, pod).status()
            except Silent as silent:
                unseen = str(silent)
            else:
                unseen = ""
                break
        active, count = is_active(job), sum(map(is_running, pods))
        how = [f"job {job['metadata']['name']}, {count} of {job['spec']['completions']} pods"]
        why = self.waits_for(job, pods) if active and count < job["spec"]["completions"] else ""
        how += [why] if count else []
        how += [f"also {others}" if (others := self.others(run)) else ""]
        found |= {"run": run, "on": active, "wanted": active, "gpus": []}
        found["how"] = "; ".join(filter(None, how)) if active else ""
        if active and not count:
            found["now"] = waiting.facts(why or waiting.NOT_YET)
        elif active and unseen:  # it may well train
            found["now"] = waiting.facts(unseen) | {"state": "not seen"}
        return found

    def stop(self, timeout_s: float = STOP_S) -> Stopped:
        """Delete the run; of those that are over what fetch does not read. What is still there then is what is left."""
        began = time.time()
        run, job = self.newest()
        answer: Stopped = {
            "was_on": False,
            "run": run,
            "script": "",
            "checkpoint": 0,
            "forced": 0,
            "ports": [],
            "kept": "",
        }
        if job is not None and not is_over(job, self.pods(job)):
            answer |= {"was_on": True, "checkpoint": self.end(run, job, began + timeout_s)}
        elif job is not None:
            answer["kept"] = f"job {job['metadata']['name']}"
        over = [other for other in self.jobs().values() if is_over(other)]
        for selector in dict.fromkeys(map(selector_of, [*over, *([job] if job else [])])):
            self.kube("delete", f"job,{ASIDE}", "-l", f"{selector},{PART}!=agent", "--ignore-not-found", "--wait=false")
        selector = selector_of(job) if job else ALL
        kinds = f"job,{ASIDE}" if answer["kept"] else f"job,pod,{ASIDE}"
        more = f",{PART}!=agent" if answer["kept"] else ""
        left = self.kube("get", kinds, "-l", selector + more, "-o", "name").split()
        stuck = self.lost(self.listed("pods", selector)) if left else ""
        answer |= {"others": self.others(run), "program": self.program}
        return answer | {"left": left, "stuck": stuck, "seconds": round(time.time() - began, 2)}

    def end(self, run: str, job: Object, until: float) -> int:
        """Deletes the Job, whose agents save within their grace period; returns the step that they then tell."""
        selector, saved = selector_of(job), Saved()
        with saved.heard([node.events(run) for node in self.living(job)[:3]]):
            self.kube("delete", "job", "-l", selector, "--cascade=foreground", "--wait=false")
            while (left := self.listed("jobs,pods", selector)) and time.time() < until:
                pods = [entry for entry in left if entry["kind"] == "Pod"]
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
        except Silent as why:
            return [replace(self, mute=str(why))]

    def files(self, run: str) -> Hashes:
        gone = "no pod of it is there (a run that was stopped is continued by launching it again by its name)"
        raise Silent(self.mute or gone)

    def events(self, run: str) -> subprocess.Popen[bytes]:
        about = json.dumps({"name": self.name, "kubectl": self.kubectl, "run": run})
        return subprocess.Popen(
            [sys.executable, "-m", "console.infra.kubernetes.report", about],
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
        selector, pods = selector_of(job), self.pods(job)
        part, step = "agent", begun_step(pods)
        makers = self.listed("pods", f"{selector},{PART}=prepare") if step != "agent" else []
        if begun_step(makers):  # they wait for it, and its lines say more than theirs
            part, step = "prepare", begun_step(makers)
        if not step:
            raise Silent(self.waits_for(job, pods) or waiting.NOT_YET)
        chosen = ["-l", f"{selector},{PART}={part}", "-c", step, *(["-f"] if follow else [])]
        more = ["--max-log-requests=1000", "--ignore-errors"]  # a pod that waits ends nobody's lines
        words = ["logs", *chosen, "--prefix", f"--tail={lines}", *more]
        return subprocess.Popen(
            [*self.kubectl, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )

    def runs(self) -> Runs:
        found: dict[str, RunFacts] = {}
        for run, job in self.jobs().items():
            step = ended_facts(job, self.pods(job))["step"]
            began = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
            found[run] = {
                "step": step.get("step", 0),
                "steps": 0,
                "loss": step.get("loss"),
                "reward": step.get("rollout", {}).get("reward"),
                "time": step.get("time", began),
                "done": has(job, "Complete") or has(job, "SuccessCriteriaMet"),
                "script": "",
                "checkpoint": 0,
                "bytes": 0,
                "model": "",
            }
            done = found[run]["done"]
            for node in self.living(job)[:1]:
                with suppress(Silent):  # it has just ended
                    found[run] |= node.runs()["runs"].get(run, {})
            found[run] |= {"done": done, "on": is_active(job), "waits": rank(job) == WAITS}
        return {"runs": found, "on": ""}

    def forget_address(self) -> dict[str, bool]:
        return {"was": False}

    def try_notify(self, address: str) -> dict[str, str]:
        """This controller tries it: no pod is there yet."""
        return {"why": send(address, Notice("test", "motley", "the address is right"))}

    def clean(self, names: list[str]) -> dict[str, dict[str, int]]:
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


# -- after the end ---------------------------------------------------------------------------------------------------


def readers(node: KubernetesNode, job: Object, pods: Sequence[Object]) -> list[PodNode]:
    """The homes of a run that is over, by a pod on the volume, or by one on each machine where they lie."""
    volumes = [volume for volume in job["spec"]["template"]["spec"]["volumes"] if volume["name"] == "home"]
    on_machines = "hostPath" in volumes[0]
    nodes = []
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
        nodes.append(PodNode(name=place, pod=name, container="files", kubectl=node.kubectl, home=home))
    return nodes


def gone(node: KubernetesNode, name: str) -> None:
    node.kube("delete", "pod", name, "--ignore-not-found", "--wait=false")
