"""What an API server would refuse is told before it is asked, and what we render has its fields and types."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.infra.kubernetes import check, objects
from console.infra.kubernetes.objects import reader_pod
from console.infra.kubernetes.settings import read
from tests.support import kube_choices, kube_models
from tests.support.plans import launch_plan, node
from train.errors import BadInput
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.model.sources import DataSource
from train.plan.settings.request import HELP

IMAGE = f"registry.example.org/motley@sha256:{'0' * 64}"
PORTS = {"presence_port": 29400, "group_ports": [29410, 29489]}
VOLUME = {"storage": "100Gi", "gpu_type": "RTX 3090"}


def plan_of(run: str = "qa", pods: int = 3, **changes: Any) -> LaunchPlan:
    nodes = [
        node(name, address=address, device="cuda", home=objects.HOME)
        for name, address in objects.nodes_of(run, pods).items()
    ]
    settings = {"recipe": "sft", "model": "tiny", "dataset": "stdlib-qa", "max_steps": 8}
    return launch_plan(settings, run=run, nodes=nodes, help=HELP, **changes)


def made(run: str = "qa", plan: LaunchPlan | None = None, **asked: Any) -> list[dict[str, Any]]:
    wanted = {"image": IMAGE, "pods": 3, **(asked or VOLUME)}
    settings = read({f"motley_kubernetes_{name}": value for name, value in wanted.items()})
    return objects.objects(plan or plan_of(run), settings, token="t", launch="l", time="", ports=PORTS)


def job_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return next(entry for entry in entries if entry["kind"] == "Job" and "completionMode" in entry["spec"])


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def agent(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(job)["containers"][0]
    return found


WAYS: list[dict[str, Any]] = [
    VOLUME,
    {"claim": "training", "gpus": 0, "namespace": "ml"},
    {"host_path": "/home/user/ai-cluster", "gpu_gb": 24, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
    {**VOLUME, "storage_class": "fast", "limits": {"cpu": 8}},
    {**VOLUME, "tolerations": [{"key": "gpu", "operator": "Exists"}], "pull_secret": "registry"},
    {**VOLUME, "node_selector": {"gpu.example.org/kind": "3090"}, "annotations": {"a.org/b": "c d"}, "uid": 0},
]


@pytest.mark.parametrize("asked", WAYS, ids=str)
def test_what_is_rendered_is_accepted(asked: dict[str, Any]) -> None:
    entries = made(**asked)
    check.refuse(entries)
    job = job_of(entries)
    entries.append(reader_pod("motley-qa-files-0", job, pod(job)["volumes"][:1], "one"))
    assert [
        finding for entry in entries for wrong in (kube_models.wrong, kube_choices.wrong) for finding in wrong(entry)
    ] == []


FIELDS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda job: job["spec"].update(completionsMode="Indexed"), "Job.spec.completionsMode: there is no such field"),
    (lambda job: job["spec"].update(completions="three"), "Expected `int | null`, got `str` - at `$.spec.completions`"),
    (lambda job: pod(job).pop("containers"), "missing required field `containers` - at `$.spec.template.spec`"),
    (lambda job: agent(job)["env"][0].update(value=1), "Expected `str | null`, got `int`"),
    (lambda job: job.update(apiVersion="batch/v1beta1"), "batch/v1beta1 Job: no such kind"),
]


@pytest.mark.parametrize(("spoil", "said"), FIELDS, ids=[said for _, said in FIELDS])
def test_a_field_that_the_api_has_not_would_be_found_here(spoil: Callable[[dict[str, Any]], Any], said: str) -> None:
    job = copy.deepcopy(job_of(made()))
    spoil(job)
    assert any(said in finding for finding in kube_models.wrong(job)), kube_models.wrong(job)


FAULTS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda job: job["spec"].update(completionMode="Index"), "completionMode is 'Index', none of Indexed"),
    (lambda job: pod(job)["tolerations"][0].update(effect="NoExec"), "effect is 'NoExec'"),
    (lambda job: pod(job).update(restartPolicy="Always"), "the pods of a Job have Never or OnFailure"),
    (lambda job: pod(job).update(restartPolicy="OnFailure"), "podFailurePolicy: it needs restartPolicy: Never"),
    (lambda job: pod(job).update(restartPolicy="OnFailure"), "backoffLimitPerIndex: it needs restartPolicy: Never"),
    (
        lambda job: agent(job)["volumeMounts"].append({"name": "nowhere", "mountPath": "/x"}),
        "mounts the volume nowhere, which is not there",
    ),
    (lambda job: job["metadata"].update(name="Motley_QA"), "its name is none of DNS (RFC 1123)"),
    (lambda job: job["metadata"].update(name="a" * 62), "longer than 63"),
    (lambda job: job["metadata"]["labels"].update({"a.org/b": "c d"}), "'c d' is no value"),
    (lambda job: job["metadata"]["labels"].update({"a b": "c"}), "'a b' is no key of a label"),
    (
        lambda job: agent(job)["resources"]["requests"].update(memory="64Gi"),
        "its limit of memory, 16Gi, is below its request, 64Gi",
    ),
    (lambda job: agent(job)["resources"]["limits"].update({"nvidia.com/gpu": "500m"}), "can only be whole"),
    (lambda job: job["spec"].update(podReplacementPolicy="TerminatingOrFailed"), "beside a podFailurePolicy"),
    (lambda job: job["spec"].update(completionMode="NonIndexed"), "successPolicy: it needs completionMode: Indexed"),
]


@pytest.mark.parametrize(("spoil", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_each_fault_is_found(spoil: Callable[[dict[str, Any]], Any], said: str) -> None:
    job = copy.deepcopy(job_of(made()))
    assert kube_choices.wrong(job) == []
    spoil(job)
    assert any(said in finding for finding in kube_choices.wrong(job)), kube_choices.wrong(job)


def test_a_setting_that_it_would_refuse_is_told_with_its_fix() -> None:
    with pytest.raises(BadInput) as wrong:
        check.refuse(made(**VOLUME, limits={"cpu": 2}, labels={"team": "ours & theirs"}))
    assert "its limit of cpu, 2, is below its request, 4" in str(wrong.value)
    assert "label team: 'ours & theirs' is no value" in str(wrong.value)
    assert str(wrong.value).endswith("docs/elsewhere.md has an example")


@pytest.mark.parametrize(("name", "value"), [("operator", "exists"), ("effect", "NoExec")])
def test_a_toleration_has_one_of_a_few_words(name: str, value: str) -> None:
    check.refuse(
        made(**VOLUME, tolerations=[{"key": "gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"}])
    )
    with pytest.raises(BadInput, match=f"{name} is '{value}', none of"):
        check.refuse(made(**VOLUME, tolerations=[{"key": "gpu", name: value}]))


def test_a_label_may_be_named_as_a_field_is() -> None:
    check.refuse(made(**VOLUME, labels={"status": "ours"}, node_selector={"effect": "loud"}))


def test_a_run_is_named_as_dns_takes_it() -> None:
    assert objects.name_of("qa") == "motley-qa"
    names = [objects.name_of(run) for run in ("Qwen2.5_x", "qwen2-5-x", "q" * 100, "q" * 99)]
    assert len(set(names)) == 4 and all(len(name) < 53 for name in names)
    for run in ("Qwen2.5_x", "q" * 100, "7b"):
        check.refuse(made(run))


def test_a_file_of_this_machine_goes_along_if_it_is_small_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    data = DataSource(name="mine", file=str(file))
    plan = plan_of(dataset=data, raw="/x", prepare=["prepare", "--json", "--dataset=/x/mine.jsonl"])
    config = next(entry for entry in made(plan=plan) if entry["kind"] == "ConfigMap")["data"]
    assert config["mine.jsonl"] == "{}\n"
    assert objects.steps(plan)[-1] == ["prepare", "--json", "--dataset=/mnt/motley-config/mine.jsonl"]
    file.write_text("x" * 1_000_000)
    with pytest.raises(BadInput, match=r"may have 0\.9 MB"):
        made(plan=plan)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is no text"):
        made(plan=plan)


def test_on_a_shared_volume_one_job_prepares_and_the_pods_wait() -> None:
    shared, each = made(), made(host_path="/home/user/ai-cluster", gpus=0)
    assert [entry["metadata"]["name"] for entry in shared if entry["kind"] == "Job"] == [
        "motley-qa-prepare",
        "motley-qa",
    ]
    assert pod(job_of(shared))["initContainers"][0]["command"][-1] == "wait"
    assert [entry["kind"] for entry in each] == ["Service", "Secret", "NetworkPolicy", "ConfigMap", "Job"]
    assert pod(job_of(each))["initContainers"][0]["command"][-1] == "prepare"


def test_only_pods_of_its_own_run_reach_a_pod() -> None:
    entries = made()
    (policy,) = [entry["spec"] for entry in entries if entry["kind"] == "NetworkPolicy"]
    assert policy["policyTypes"] == ["Ingress"], "what a pod fetches is its own affair"
    ((source,),) = [rule["from"] for rule in policy["ingress"]]
    chosen = [policy["podSelector"]["matchLabels"], source["podSelector"]["matchLabels"]]
    jobs = [job_of(run) for run in (entries, made("another"))]
    own, other = [job["spec"]["template"]["metadata"]["labels"].items() for job in jobs]
    assert [(want.items() <= own, want.items() <= other) for want in chosen] == [(True, False)] * 2


@pytest.mark.parametrize("asked", [VOLUME, {"host_path": "/home/user/ai-cluster", "gpu_gb": 24}], ids=str)
def test_a_quota_on_limits_can_be_met_by_every_container(asked: dict[str, Any]) -> None:
    """A namespace with a quota of limits.cpu takes no pod in which one container has none; cards are the agent's."""
    limits = {"cpu": 8, "ephemeral-storage": "10Gi", "example.org/dongle": 1}
    entries = made(**asked, limits=limits)
    every = [container for entry in entries for container in check.containers(entry)]
    assert len(every) == 2 + ("storage" in asked)
    for container in every:
        given = container["resources"]
        assert {"cpu", "memory"} <= given["requests"].keys()
        assert {"cpu": 8, "ephemeral-storage": "10Gi"}.items() <= given["limits"].items()
        assert {"nvidia.com/gpu", "example.org/dongle"} & given["limits"].keys() == (
            {"nvidia.com/gpu", "example.org/dongle"} if container["name"] == "agent" else set()
        )


def test_the_pod_that_reads_files_is_taken_where_those_of_its_run_were() -> None:
    limits, tolerations = {"cpu": 8}, [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    asked = {"host_path": "/srv/ai-cluster", "gpu_gb": 24, "pull_secret": "pull", "node_selector": {"a.org/b": "c"}}
    job = job_of(made(**asked, limits=limits, tolerations=tolerations))
    found = reader_pod("motley-qa-files-0", job, pod(job)["volumes"][:1], "one")
    assert kube_choices.wrong(found) == [] and found["spec"]["nodeName"] == "one"
    for name in ("tolerations", "nodeSelector", "imagePullSecrets", "securityContext"):
        assert found["spec"][name] == pod(job)[name]
    (container,) = found["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": 8, "memory": "16Gi"}, "and no card"
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_a_folder_of_a_machine_is_one_that_is_there() -> None:
    """One that a kubelet makes is root's, and the pods are another user; without a word of theirs their log is one."""
    job = job_of(made(host_path="/srv/ai-cluster", gpu_gb=24))
    assert pod(job)["volumes"][0]["hostPath"]["type"] == "Directory"
    policies = {container["terminationMessagePolicy"] for container in check.containers(job)}
    assert policies == {"FallbackToLogsOnError"}


def test_a_queue_lets_it_begin() -> None:
    queued = job_of(made(**VOLUME, labels={"kueue.x-k8s.io/queue-name": "team", "cost": "ours"}))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    labels = queued["spec"]["template"]["metadata"]["labels"]
    assert labels["cost"] == "ours" and "kueue.x-k8s.io/queue-name" not in labels
    assert "suspend" not in job_of(made())["spec"]


def test_a_machine_that_goes_is_no_failure_and_a_verdict_ends_the_job() -> None:
    """Rules are read in their order; without tolerations of its own a pod stays for minutes where nobody answers."""
    job = job_of(made())
    ignored, ends = job["spec"]["podFailurePolicy"]["rules"]
    assert ignored["action"] == "Ignore" and ignored["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert ends["action"] == "FailJob" and ends["onExitCodes"] == {"operator": "In", "values": [1, 2]}
    stays = {one["key"].rpartition("/")[2]: one["tolerationSeconds"] for one in pod(job)["tolerations"]}
    assert stays == {"unreachable": objects.AWAY_S, "not-ready": objects.AWAY_S}
