"""A run as a Job of Kubernetes, in its simulation (tests/support/kube_sim.py): the objects that a launch has made, with
real agents and workers in the pods, and the verbs of ./motley as somebody types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.kube_sim import MACHINES, Folder
from tests.train import cluster, reference
from tests.train.agents import _ports
from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, prctl
from train.models.model_files import model_folder
from train.runlog.state import history
from train.runlog.tail import read

IMAGE = f"registry.example.org/motley@sha256:{'0' * 64}"
STEPS = 100_000
# These runs end when somebody stops them, after hundreds of steps where the machine is slow. At 2e-3 the order of a sum
# alone moves the loss by 1.7e-2 within 300 steps of 80 rows; at 2e-4 by 2e-7 within 500.
RATE = 2e-4
SETTINGS = ("rows_per_step=4", "lora_r=8", "max_seq_length=64", f"learning_rate={RATE}", "grad_clip=0.3", "sync=flat")
PYTHON = cluster.ROOT / ".venv/bin/python"


def log_of(home: Path, run: str) -> Path:
    return home / "logs/runs" / run / "events.jsonl"


class Kubernetes:
    def __init__(self, home: Path, **asked) -> None:
        self.text = ""
        self.home, self.run = home, f"k{os.getpid()}-{asked.pop('run', 'qa')}"
        self.folder = Folder(home / "kubernetes")
        if path := str(asked.get("host_path", "")):  # as bootstrap makes it
            for machine in MACHINES:
                (self.folder.path / "machines" / machine / path.lstrip("/")).mkdir(parents=True)
        self.server = self.folder.serve()
        cluster.STARTED.append(self.server)
        first = _ports()
        self.values = {
            "infra": "kubernetes",
            "motley_state": str(home / "state"),
            "motley_manage_host": False,
            "ansible_connection": "local",
            "motley_kubernetes_image": IMAGE,
            "motley_kubernetes_gpus": 0,
            "motley_kubernetes_pods": 3,
            "motley_kubernetes_cpu": "1",
            "motley_kubernetes_memory": "2Gi",
            "motley_kubernetes_limits": {"cpu": 8},
            "motley_kubernetes_tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "motley_kubernetes_environment": {"NCCL_DEBUG": "INFO"},
            "motley_render_presence_port": first,
            "motley_render_group_ports": [first + 1, first + 60],
            **{f"motley_kubernetes_{name}": value for name, value in asked.items()},
        }
        inventory = home / "inventory"
        inventory.mkdir()
        (inventory / "group_vars").symlink_to(cluster.ROOT / "inventory/kubernetes/group_vars")
        (inventory / "hosts.yml").write_text(
            json.dumps({"cluster": {"vars": self.values, "hosts": {"kubernetes": {}}}})
        )

    def motley(self, *words: str, kubectl: bool = True) -> subprocess.CompletedProcess[str]:
        command, env = self.typed(words, kubectl=kubectl)
        return pace.run(*command, cwd=cluster.ROOT, env=env)

    def goes_on(self, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A verb that does not end at once, and the file with what it says."""
        command, env = self.typed(words)
        said = self.home / f"said-{words[0]}"
        with said.open("wb") as out:
            process = subprocess.Popen(command, cwd=cluster.ROOT, env=env, stdout=out, stderr=out)
        cluster.STARTED.append(process)
        return process, said

    def typed(self, words: tuple[str, ...], *, kubectl: bool = True) -> tuple[list[str], dict[str, str]]:
        paths = [*([str(self.folder.path / "bin")] if kubectl else []), str(PYTHON.parent), "/usr/bin", "/bin"]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MOTLEY_", "PYTHON"))}
        bury = [str(PYTHON), "-m", "tests.support.bury"]
        command = [*bury, str(PYTHON), "-m", "console", *words, "--inventory", str(self.home / "inventory")]
        return command, env | {"PATH": ":".join(paths)}

    def rows(self) -> Path:
        file = self.home / "pairs.jsonl"
        pairs = [{"instruction": f"What is {n} and {n}?", "output": f"It is {2 * n}, as {n} twice."} for n in range(80)]
        file.write_text(self.text or "".join(json.dumps(pair) + "\n" for pair in pairs))
        return file

    def launch(self, *more: str, steps: int = 40, kubectl: bool = True) -> subprocess.CompletedProcess[str]:
        words = [word for setting in (f"dataset={self.rows()}", *SETTINGS, *more) for word in ("--set", setting)]
        return self.motley(
            "launch", "--model", "tiny", "--run", self.run, "--steps", str(steps), *words, kubectl=kubectl
        )

    def agents(self) -> dict[int, dict]:
        return {
            int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]): pod
            for pod in self.folder.pods().values()
            if pod["metadata"]["labels"]["motley/part"] == "agent" and pod["status"]["phase"] in ("Pending", "Running")
        }

    def events(self, place: int) -> list[dict]:
        pod = self.agents().get(place)
        file = log_of(self.folder.place(pod, self.run), self.run) if pod else Path("none")
        return read(file) if file.exists() else []

    def step(self, place: int) -> int:
        return max((event["step"] for event in self.events(place) if event["event"] == "step"), default=0)

    def replaced(self, place: int, pod: dict) -> float:
        """When it was: until then its old one may go on for some steps."""

        def found() -> bool:
            now = self.agents().get(place)
            return now is not None and now["metadata"]["name"] != pod["metadata"]["name"]

        pace.until(found, 60, self.logs)
        return time.time()

    def up(self, pod: dict) -> float:
        """When the agent of this pod began."""
        file = log_of(self.folder.place(pod, self.run), self.run).with_name("members.jsonl")
        return next(event["time"] for event in read(file) if event["event"] == "up")

    def together(self, *places: int, since: float, step: int = 0) -> dict:
        """The first step that exactly these have trained after that time."""
        names = {f"motley-{self.run}-{place}" for place in places}

        def found() -> dict | None:
            assert not self.folder.ended(f"motley-{self.run}"), self.logs()
            steps = [event for event in self.events(places[0]) if event["event"] == "step" and event["time"] > since]
            return next((one for one in steps if set(one["nodes"]) == names and one["step"] > step), None)

        return pace.until(found, 120, self.logs)

    def logs(self) -> str:
        return "\n".join(
            f"== {file.name}\n{file.read_text()[-1500:]}" for file in (self.folder.path / "pods").glob("*.log")
        )


@pytest.fixture
def kubernetes(tmp_path):
    if os.getuid():
        pytest.skip("NOT RUN: pods have namespaces of their own (fix: sudo make test)")
    made = []
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # as after any test with a fork server: orphans of a pod's namespace come here

    def make(**asked) -> Kubernetes:
        made.append(Kubernetes(tmp_path, **asked))
        return made[-1]

    yield make
    for one in made:
        one.server.send_signal(signal.SIGTERM)
        one.server.wait()


def saved(folder: Path, run: str) -> int:
    steps = [int(path.name[5:]) for path in (folder / "models/checkpoints" / run).glob("step-*")]
    return max(steps, default=0)


def test_a_run_is_launched_seen_and_stopped(kubernetes):
    there = kubernetes(host_path="/home/user/ai-cluster")
    begins(there)
    step = there.together(0, 1, 2, since=0)["step"]
    follow, followed = there.goes_on("follow")
    logs, logged = there.goes_on("logs", "--lines", "1000")
    pace.until(lambda: re.search(rf"step [1-9]\d*/{STEPS} ", followed.read_text()), 60, followed.read_text)
    pods = {pod["metadata"]["name"] for pod in there.agents().values()}
    heard = lambda: set(re.findall(r"\[pod/(\S+)/agent\] \S", logged.read_text()))  # noqa: E731
    pace.until(lambda: heard() == pods, 60, logged.read_text)
    assert follow.poll() is None and logs.poll() is None, "they go on with the run"
    stops(there, step, compared=80)
    assert pace.ended(follow, 60, followed.read_text) == 0, followed.read_text()
    assert re.search(r"stopped at step \d+", followed.read_text()), followed.read_text()
    assert pace.ended(logs, 60, logged.read_text) == 0, logged.read_text()


@pytest.mark.long
def test_pods_that_are_lost_or_drained_come_back_under_their_names(kubernetes):
    """One is lost with its machine: two train on, and once somebody says that it is off it is made again at another
    address with an empty disk. One is told to go, and saves first. The curve is that of one process."""
    there = kubernetes(host_path="/home/user/ai-cluster")
    begins(there)
    there.together(0, 1, 2, since=0)
    lost = there.agents()[2]
    there.folder.lose(lost["metadata"]["name"])
    there.together(0, 1, since=time.time(), step=there.step(0))
    pace.does(there.folder.path / "bin/kubectl", "delete", "pod", "--force", lost["metadata"]["name"])
    trained = there.together(0, 1, 2, since=there.replaced(2, lost), step=there.step(0))
    back = there.agents()[2]
    assert back["status"]["podIP"] != lost["status"]["podIP"] and back["spec"]["nodeName"] != lost["spec"]["nodeName"]
    assert trained["time"] - there.up(back) < pace.seconds(30)

    told, step = there.agents()[1], there.step(1)
    home = there.folder.place(told, there.run)
    there.folder.evict(told["metadata"]["name"])
    there.together(0, 1, 2, since=there.replaced(1, told), step=step)
    assert saved(home, there.run) >= step, "it did not save before it went"
    stops(there, step)


def begins(there: Kubernetes) -> None:
    launched = pace.went_well(there.launch("follow=false", "save_every=100000", steps=STEPS))
    assert "the API server would take them" in launched.stdout


def stops(there: Kubernetes, step: int, *, compared: int = STEPS) -> None:
    """All three train; what was saved is said, nothing is left, and the losses are those of one process: the first
    ones, as the truth takes its time as well."""
    shown = there.motley("status").stdout
    assert f"run {there.run}" in shown and "3 of 3 pods" in shown
    homes = [there.folder.place(pod, there.run) for _, pod in sorted(there.agents().items())]
    stopped = there.motley("stop")
    assert stopped.returncode == 0, f"{stopped.stdout}{stopped.stderr}\n{there.logs()}"
    said = re.search(rf"run {there.run} stopped at step (\d+) ", stopped.stdout)
    assert said and int(said[1]) in [saved(home, there.run) for home in homes], stopped.stdout
    assert not there.folder.pods()
    home = homes[0]
    # Another one may have written a step that this one did not: it took it over from there.
    losses = {event["step"]: event["loss"] for event in history(read(log_of(home, there.run)))}
    rows = next(there.folder.path.glob("machines/*/home/user/ai-cluster/data/processed/pairs-*"))
    last = min(max(losses), compared)
    truth = reference.losses(model_folder("tiny"), rows, steps=last, rows_per_step=4, rate=RATE, of_steps=STEPS)
    assert max(losses) > step and len(losses) > max(losses) - 4
    assert max(abs(loss / truth[step - 1] - 1) for step, loss in losses.items() if step <= last) < 1e-5


@pytest.mark.long
def test_a_run_on_a_shared_volume_to_its_end_and_its_result_home(kubernetes, tmp_path):
    """In a namespace with a quota on limits, and with the strictest pod security."""
    there = kubernetes(storage="10Gi", pods=2)
    quota = [f"{kind}.{resource}" for kind in ("limits", "requests") for resource in ("cpu", "memory")]
    there.folder.allow(quota=quota, security="restricted")
    launched = pace.went_well(there.launch(steps=12))
    assert "done · 12 steps" in launched.stdout
    pace.until(lambda: there.folder.ended(f"motley-{there.run}"), 60, there.logs)
    assert re.search(rf"{there.run} .* 12/.* done", there.motley("runs").stdout)
    assert f"the last was {there.run}: done at step 12" in there.motley("status").stdout
    fetched = pace.went_well(there.motley("fetch", "--results", str(tmp_path / "results")))
    assert (tmp_path / "results" / there.run / "adapter/adapter_model.safetensors").exists()
    assert "the same on" in fetched.stdout
    pace.until(lambda: not any("files" in name for name in there.folder.pods()), 30, "the pod that read is left")
    stopped = there.motley("stop")
    assert stopped.returncode == 0 and f"kept for fetch: job motley-{there.run}" in stopped.stdout, stopped.stdout
    with there.folder.locked() as objects:
        left = sorted({one["kind"] for one in objects.values()} - {"Pod", "Event"})
    assert left == ["Job", "PersistentVolumeClaim"], "its tokens are gone"


@pytest.mark.long
def test_what_the_pods_cannot_prepare_ends_the_run_with_its_reason(kubernetes):
    there = kubernetes(storage="10Gi", pods=2)
    there.text = json.dumps({"instruction": "word " * 300, "output": "It is."}) + "\n"
    failed = there.launch()
    assert failed.returncode == 1, failed.stdout
    assert "FailJob" in failed.stdout + failed.stderr, failed.stdout + failed.stderr
    said = there.motley("logs").stdout
    assert "none has any of its answer within 64 tokens" in said, said


@pytest.mark.long
def test_a_setting_that_the_api_would_refuse_is_told_before_anything_is_applied(kubernetes):
    there = kubernetes(storage="10Gi", limits={"cpu": "500m"})
    refused = there.launch()
    assert refused.returncode != 0 and not there.folder.pods()
    assert "its limit of cpu, 500m, is below its request, 1" in refused.stdout + refused.stderr


@pytest.mark.long
def test_what_a_namespace_refuses_is_told_by_the_plan_or_where_it_waits(kubernetes):
    """The Job is taken either way: only its pods are judged."""
    there = kubernetes(host_path="/home/user/ai-cluster")
    there.folder.allow(security="baseline")
    refused = there.launch()
    assert refused.returncode != 0 and not there.folder.pods()
    assert 'violates PodSecurity "baseline:latest": hostPath volumes' in refused.stdout + refused.stderr
    there.folder.allow()
    written = there.launch(kubectl=False)
    there.folder.allow(security="baseline")
    kubectl = there.folder.path / "bin/kubectl"
    applied = pace.run(kubectl, "apply", "-f", there.home / f"state/kubernetes/{there.run}.yaml")
    assert applied.returncode == 0, written.stdout + applied.stderr
    said = pace.until(lambda: "hostPath" in (shown := there.motley("status").stdout) and shown, 30, "no word of it")
    assert "waiting: job motley-" in said and "violates PodSecurity" in said


@pytest.mark.long
def test_without_kubectl_it_writes_the_file_and_says_how(kubernetes):
    there = kubernetes(claim="training")
    written = pace.went_well(there.launch(kubectl=False))
    file = there.home / f"state/kubernetes/{there.run}.yaml"
    assert f"kubectl apply -f {file}" in written.stdout and file.stat().st_mode & 0o077 == 0
    applied = pace.run(there.folder.path / "bin/kubectl", "apply", "-f", file)
    assert applied.returncode == 0 and f"Job/motley-{there.run} created" in applied.stdout
