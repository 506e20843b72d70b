"""A Kubernetes small enough for a test: an API server that is a folder, its controllers and kubelets as one process.

    python -m tests.support.kube_sim FOLDER     until it is ended; kube_sim_kubectl.py is what a person has of it

A pod is what it is in the real one as far as a run can see: its containers are processes in a mount and a PID namespace
of their own, one after the other, with the volumes where they are mounted, an address of its own (of loopback), a
hosts file that knows the pods of a headless Service, and a grace period at its end. It needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.kube_rules import judge, refused

INDEX = "batch.kubernetes.io/job-completion-index"
MACHINES = ("one", "two", "three")
Object = dict[str, Any]


class Folder:
    """The API server: objects by kind and name, and what its machines have on their disks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for part in ("objects", "claims", "machines", "pods", "bin"):
            (path / part).mkdir(parents=True, exist_ok=True)
        (path / "hosts").touch()

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Object]]:
        """All objects; what is changed in them is kept."""
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self.path / "objects/all.json"
            objects: dict[str, Object] = json.loads(file.read_text()) if file.exists() else {}
            before = json.dumps(objects)
            yield objects
            if (after := json.dumps(objects)) != before:
                draft = file.with_suffix(".new")
                draft.write_text(after)
                draft.replace(file)

    def serve(self) -> subprocess.Popen[bytes]:
        """With a kubectl for PATH in bin/."""
        program = self.path / "bin/kubectl"
        words = f"{sys.executable} -m tests.support.kube_sim_kubectl {self.path}"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {words} "$@"\n')
        program.chmod(0o755)
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-m", "tests.support.kube_sim", str(self.path)], env=env, cwd=ROOT)

    def allow(self, **what: Any) -> None:
        """What its namespace does, as kube_rules.refused() takes it."""
        (self.path / "namespace.json").write_text(json.dumps(what))

    def namespace(self) -> Object:
        file = self.path / "namespace.json"
        found: Object = json.loads(file.read_text()) if file.exists() else {}
        return found

    def pods(self) -> dict[str, Object]:
        with self.locked() as objects:
            return {entry["metadata"]["name"]: entry for entry in objects.values() if entry["kind"] == "Pod"}

    def ended(self, name: str) -> list[Object]:
        """Why this Job is over."""
        with self.locked() as objects:
            return list(objects.get(f"Job/{name}", {"status": {"conditions": []}})["status"]["conditions"])

    def place(self, pod: Object, run: str) -> Path:
        """The home of its agent, as it lies on this machine."""
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "home"]
        return self.source(pod, volume) / f"jobs/{run}/place-{pod['metadata']['annotations'][INDEX]}"

    def source(self, pod: Object, volume: Object) -> Path:
        if "hostPath" in volume:
            return self.path / f"machines/{pod['spec']['nodeName']}/{volume['hostPath']['path'].lstrip('/')}"
        if "persistentVolumeClaim" in volume:
            return self.path / "claims" / str(volume["persistentVolumeClaim"]["claimName"])
        return self.path / f"pods/{pod['metadata']['name']}/{volume['name']}"

    def evict(self, name: str) -> None:
        """As a drained machine does: told, and given its grace period."""
        with self.locked() as objects:
            pod = objects[f"Pod/{name}"]
            pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
            told_to_go(pod)

    def lose(self, name: str) -> None:
        """Its machine is gone, with its disk: no word, no grace, and no kubelet that would say that the pod has ended.
        So it is Terminating until somebody deletes it by force."""
        with self.locked() as objects:
            pod = objects[f"Pod/{name}"]
            pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
            kill(pod)
            told_to_go(pod)
            pod["status"]["lost"] = True
            machine = self.path / "machines" / pod["spec"]["nodeName"]
            machine.rename(machine.with_suffix(".lost"))
            machine.with_suffix(".gone").touch()


def told_to_go(entry: Object) -> None:
    """A pod's timestamp is the end of its grace."""
    grace = entry["spec"].get("terminationGracePeriodSeconds", 30) if entry["kind"] == "Pod" else 0
    at = datetime.fromtimestamp(time.time() + grace, UTC).isoformat()
    entry["metadata"].setdefault("deletionTimestamp", at)


def kill(pod: Object, number: int = signal.SIGKILL) -> None:
    if first := first_process(pod):
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, number)
            pod["status"]["killed"] = number == signal.SIGKILL  # unshare itself does not hand that on


def first_process(pod: Object) -> int:
    """Of the container that runs: the child of what made its namespaces."""
    outer = pod["status"].get("process", 0)
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
    return 0


def processes(pod: Object) -> str:
    """What its namespace holds, and where in the kernel that waits."""
    found = []
    with contextlib.suppress(OSError):
        own = Path(f"/proc/{pod['status']['process']}/ns/pid_for_children").stat().st_ino
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "ns/pid").stat().st_ino == own:
                    words = (process / "cmdline").read_bytes().split(b"\0")[:4]
                    state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
                    at = (process / "wchan").read_text()
                    found.append(f"{process.name} of {parent} {state} in {at}: {b' '.join(words).decode()}")
    return "; ".join(found)


def note(pod: Object, words: str) -> None:
    """For whoever reads a test that failed."""
    print(f"{time.time():.2f} {pod['metadata']['name']} {words}", file=sys.stderr, flush=True)


# -- controllers and kubelets ----------------------------------------------------------------------------------------


class Server:
    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.net, self.made = 1 + secrets.randbelow(250), 0

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            self.for_ever()
        finally:
            for process in self.running.values():
                process.kill()  # and with it what is in its namespaces

    def for_ever(self) -> None:
        while True:
            with self.folder.locked() as objects:
                for entry in [one for one in objects.values() if one["kind"] == "Job"]:
                    self.job(entry, objects)
                for entry in [one for one in objects.values() if one["kind"] == "Pod"]:
                    self.pod(entry, objects)
                self.write_hosts(objects)
            time.sleep(0.05)

    def job(self, job: Object, objects: dict[str, Object]) -> None:
        spec, meta = job["spec"], job["metadata"]
        pods = [one for one in objects.values() if one["kind"] == "Pod" and one["metadata"].get("job") == meta["name"]]
        if "deletionTimestamp" not in meta:
            judge(job, pods)
        if "deletionTimestamp" in meta or job["status"]["conditions"]:
            for pod in pods:
                if "deletionTimestamp" in meta or pod["status"]["phase"] in ("Pending", "Running"):
                    told_to_go(pod)
            if "deletionTimestamp" in meta and not pods:
                del objects[f"Job/{meta['name']}"]
            return
        job["status"]["ready"] = sum(pod["status"]["phase"] == "Running" for pod in pods)
        if spec.get("suspend"):
            return
        for index in range(spec.get("completions", 1)):
            own = [pod for pod in pods if pod["metadata"]["annotations"][INDEX] == str(index)]
            if not any(pod["status"]["phase"] != "Failed" for pod in own):
                self.create(job, index, objects)

    def create(self, job: Object, index: int, objects: dict[str, Object]) -> None:
        machines = [name for name in MACHINES if not (self.folder.path / "machines" / f"{name}.gone").exists()]
        self.made += 1
        name = f"{job['metadata']['name']}-{index}-{secrets.token_hex(3)}"
        template = json.loads(json.dumps(job["spec"]["template"]))
        meta = template["metadata"] | {"name": name, "job": job["metadata"]["name"]}
        meta["annotations"] = {**meta.get("annotations", {}), INDEX: str(index)}
        spec = template["spec"] | {"nodeName": machines[(index + self.made) % len(machines)]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        if why := refused(pod, self.folder.namespace()):
            return warn(objects, job, "FailedCreate", f"Error creating: {why}")
        objects[f"Pod/{name}"] = new(pod)

    def pod(self, pod: Object, objects: dict[str, Object]) -> None:
        meta, status = pod["metadata"], pod["status"]
        process = self.running.get(meta["name"])
        if status.get("lost"):
            return
        if process is None and status["phase"] == "Pending" and "deletionTimestamp" not in meta:
            if not self.mounts(pod, objects):
                return
            status["podIP"] = f"127.1.{self.net}.{self.made % 250 + 1}"
            self.made += 1
            status["number"] = 0
            self.start(pod, objects)
        elif process is not None and process.poll() is not None:
            del self.running[meta["name"]]
            self.ended(pod, process.returncode, objects)
        elif "deletionTimestamp" in meta and process is not None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            if not status.get("told"):
                status["told"] = True
                kill(pod, signal.SIGTERM)
                note(pod, f"told to end, within {grace} s")
            elif time.time() > datetime.fromisoformat(meta["deletionTimestamp"]).timestamp():
                if not status.get("killed"):
                    note(pod, f"killed; there are {processes(pod)}")
                kill(pod)
        elif "deletionTimestamp" in meta and process is None:
            owner = objects.get(f"Job/{meta.get('job', '')}")
            if (
                owner is None
                or status.get("counted")
                or owner["status"]["conditions"]
                or "deletionTimestamp" in owner["metadata"]
            ):
                del objects[f"Pod/{meta['name']}"]
            elif status["phase"] == "Pending":
                status |= {"phase": "Failed", "code": 137}

    def mounts(self, pod: Object, objects: dict[str, Object]) -> bool:
        """A kubelet makes no folder of type Directory, and says so in an event alone."""
        for volume in pod["spec"]["volumes"]:
            source = self.folder.source(pod, volume)
            if volume.get("hostPath", {}).get("type") == "Directory" and not source.is_dir():
                path = volume["hostPath"]["path"]
                why = f'MountVolume.SetUp failed for volume "{volume["name"]}": {path} is not a directory'
                warn(objects, pod, "FailedMount", why)
                pod["status"] |= waits(pod)
                return False
        return True

    def start(self, pod: Object, objects: dict[str, Object]) -> None:
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        container = containers[pod["status"]["number"]]
        words = [*namespaces(self.folder, pod, container, objects), *container["command"]]
        with (self.folder.path / "pods" / f"{pod['metadata']['name']}.log").open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.running[pod["metadata"]["name"]] = process
        first = pod["status"]["number"] < len(containers) - 1
        pod["status"] |= {"phase": "Pending" if first else "Running", "process": process.pid}
        kind = "initContainerStatuses" if first else "containerStatuses"
        if first:
            pod["status"] |= waits(pod)
        pod["status"][kind] = [{"name": container["name"], "state": {"running": {}}}]

    def ended(self, pod: Object, code: int, objects: dict[str, Object]) -> None:
        status = pod["status"]
        count = len(pod["spec"].get("initContainers", []))
        code = 137 if status.get("killed") else code if code >= 0 else 128 - code
        told = self.folder.path / "pods" / pod["metadata"]["name"] / "last-words"
        words = told.read_text()[-4096:] if told.exists() else ""
        if code and not words:  # FallbackToLogsOnError
            words = (self.folder.path / "pods" / f"{pod['metadata']['name']}.log").read_text()[-2048:]
        state = {"terminated": {"exitCode": code, "message": words}}
        if status["number"] < count and code == 0:
            status["number"] += 1
            self.start(pod, objects)
            return
        kind = "initContainerStatuses" if status["number"] < count else "containerStatuses"
        status[kind] = [{"name": status[kind][0]["name"], "state": state}]
        status["code"] = code
        note(pod, f"ended with {code}")
        status["phase"] = "Failed" if code else "Succeeded"

    def write_hosts(self, objects: dict[str, Object]) -> None:
        lines = ["127.0.0.1 localhost"]
        for pod in [one for one in objects.values() if one["kind"] == "Pod"]:
            service, meta = pod["spec"].get("subdomain"), pod["metadata"]
            if service and f"Service/{service}" in objects and pod["status"]["phase"] in ("Pending", "Running"):
                name = f"{meta['job']}-{meta['annotations'][INDEX]}"
                lines.append(f"{pod['status'].get('podIP', '127.1.0.1')} {name}.{service}")
        text, file = "\n".join(lines) + "\n", self.folder.path / "hosts"
        if file.read_text() != text:
            file.write_text(text)  # in its place: the pods have this very file


def namespaces(folder: Folder, pod: Object, container: Object, objects: dict[str, Object]) -> list[str]:
    """How this container is begun: its mounts, its variables."""
    own = folder.path / "pods" / pod["metadata"]["name"]
    own.mkdir(exist_ok=True)
    said = own / "last-words"
    said.touch()
    script = ["set -e", "mount -t tmpfs tmpfs /mnt", f"mount --bind {folder.path}/hosts /etc/hosts"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "emptyDir" in volume:
            continue
        source = folder.source(pod, volume)
        source.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            for name, text in objects[f"ConfigMap/{volume['configMap']['name']}"]["data"].items():
                (source / name).write_text(text)
        script.append(f"mkdir -p {mount['mountPath']} && mount --bind {source} {mount['mountPath']}")
    if place := container.get("terminationMessagePath"):
        script.append(f"touch {place} && mount --bind {said} {place}")
    script.append('exec env -i "$@"')
    outer = ["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", "\n".join(script), "sh"]
    return [*outer, *(f"{name}={value}" for name, value in variables(pod, container, objects).items())]


def variables(pod: Object, container: Object, objects: dict[str, Object]) -> dict[str, str]:
    """Those of the image, those of the container."""
    python = Path(sys.executable).parent
    found = {"PATH": f"{python}:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    if cache := os.environ.get("MOTLEY_CACHE"):
        found["MOTLEY_CACHE"] = cache
    found["JOB_COMPLETION_INDEX"] = pod["metadata"].get("annotations", {}).get(INDEX, "")
    for one in container.get("env", []):
        source = one.get("valueFrom", {})
        if "secretKeyRef" in source:
            key = source["secretKeyRef"]
            secret = objects[f"Secret/{key['name']}"]["stringData"]
            if key["key"] in secret or not key.get("optional"):
                found[one["name"]] = secret[key["key"]]
        elif "fieldRef" in source:
            found[one["name"]] = pod["status"][source["fieldRef"]["fieldPath"].removeprefix("status.")]
        else:
            found[one["name"]] = one["value"]
    return found


def waits(pod: Object) -> Object:
    """All its containers are listed from the start."""
    state = {"waiting": {"reason": "PodInitializing"}}
    kinds = {"initContainerStatuses": "initContainers", "containerStatuses": "containers"}
    return {
        kind: [{"name": one["name"], "state": state} for one in pod["spec"].get(key, [])] for kind, key in kinds.items()
    }


def warn(objects: dict[str, Object], about: Object, why: str, message: str) -> None:
    """As an event, which is counted where it happens again."""
    name = about["metadata"]["name"]
    at = datetime.fromtimestamp(time.time(), UTC).isoformat()
    event = {"kind": "Event", "metadata": {"name": f"{name}.{why}"}, "type": "Warning", "reason": why}
    event |= {"involvedObject": {"kind": about["kind"], "name": name}, "message": message, "lastTimestamp": at}
    objects[f"Event/{name}.{why}"] = event


def new(entry: Object) -> Object:
    entry["metadata"]["creationTimestamp"] = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="microseconds")
    entry["status"] = {"phase": "Pending"} if entry["kind"] == "Pod" else {"conditions": []}
    return entry


if __name__ == "__main__":
    Server(Folder(Path(sys.argv[1]))).serve()
