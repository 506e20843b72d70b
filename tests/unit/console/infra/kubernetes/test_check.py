"""What an API server would refuse is told before it is asked, and what we render has its fields and types."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.infra.kubernetes import check, objects
from console.infra.kubernetes.objects import reader_pod
from tests.support import kube_choices, kube_models
from tests.support.kube_server import VOLUME, job_of, made, plan_of
from train.errors import BadInput
from train.plan.model.sources import DataSource


def pod(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["template"]["spec"]


def agent(job: dict[str, Any]) -> dict[str, Any]:
    return pod(job)["containers"][0]


WAYS: list[dict[str, Any]] = [
    VOLUME,
    {"claim": "training", "gpus": 0, "namespace": "ml"},
    {
        "host_path": "/home/user/ai-cluster",
        "gpu_gb": 24,
        "labels": {"kueue.x-k8s.io/queue-name": "team", "status": "ours"},
    },
    {**VOLUME, "storage_class": "fast", "limits": {"cpu": 8}},
    {**VOLUME, "tolerations": [{"key": "gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]},
    {
        **VOLUME,
        "node_selector": {"gpu.example.org/kind": "3090", "effect": "loud"},
        "annotations": {"a.org/b": "c d"},
        "uid": 0,
        "pull_secret": "registry",
    },
]


@pytest.mark.parametrize("asked", WAYS, ids=str)
def test_what_is_rendered_is_accepted(asked: dict[str, Any]) -> None:
    entries = made(**asked)
    check.refuse(entries)
    job = job_of(entries)
    entries.append(reader_pod("motley-qa-files-0", job, pod(job)["volumes"][:1], "one"))
    assert [finding for entry in entries for finding in findings(entry)] == []


def findings(entry: dict[str, Any]) -> list[str]:
    return [*kube_models.wrong(entry), *kube_choices.wrong(entry)]


FAULTS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda job: job["spec"].update(completionsMode="Indexed"), "Job.spec.completionsMode: there is no such field"),
    (lambda job: agent(job)["env"][0].update(value=1), "Expected `str | null`, got `int`"),
    (lambda job: job.update(apiVersion="batch/v1beta1"), "batch/v1beta1 Job: no such kind"),
    (lambda job: job["spec"].update(completionMode="Index"), "completionMode is 'Index', none of Indexed"),
    (lambda job: pod(job).update(restartPolicy="Always"), "the pods of a Job have Never or OnFailure"),
    (lambda job: pod(job).update(restartPolicy="OnFailure"), "podFailurePolicy: it needs restartPolicy: Never"),
    (lambda job: pod(job).update(restartPolicy="OnFailure"), "backoffLimitPerIndex: it needs restartPolicy: Never"),
    (
        lambda job: agent(job)["volumeMounts"].append({"name": "nowhere", "mountPath": "/x"}),
        "mounts the volume nowhere, which is not there",
    ),
    (lambda job: job["metadata"].update(name="Motley_QA"), "its name is none of DNS (RFC 1123)"),
    (lambda job: job["metadata"].update(name="a" * 62), "longer than 63"),
    (lambda job: job["metadata"]["labels"].update({"a b": "c"}), "'a b' is no key of a label"),
    (lambda job: agent(job)["resources"]["limits"].update({"nvidia.com/gpu": "500m"}), "can only be whole"),
    (lambda job: job["spec"].update(podReplacementPolicy="TerminatingOrFailed"), "beside a podFailurePolicy"),
    (lambda job: job["spec"].update(completionMode="NonIndexed"), "successPolicy: it needs completionMode: Indexed"),
]


@pytest.mark.parametrize(("spoil", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_each_fault_is_found(spoil: Callable[[dict[str, Any]], Any], said: str) -> None:
    job = copy.deepcopy(job_of(made()))
    spoil(job)
    assert any(said in finding for finding in findings(job)), findings(job)


def test_a_setting_that_it_would_refuse_is_told_with_its_fix() -> None:
    with pytest.raises(BadInput) as wrong:
        check.refuse(made(**VOLUME, limits={"cpu": 2}, labels={"team": "ours & theirs"}))
    assert "its limit of cpu, 2, is below its request, 4" in str(wrong.value)
    assert "label team: 'ours & theirs' is no value" in str(wrong.value)
    assert str(wrong.value).endswith("docs/elsewhere.md has an example")


@pytest.mark.parametrize(("name", "value"), [("operator", "exists"), ("effect", "NoExec")])
def test_a_toleration_has_one_of_a_few_words(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is '{value}', none of"):
        check.refuse(made(**VOLUME, tolerations=[{"key": "gpu", name: value}]))


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
    names = [entry["metadata"]["name"] for entry in shared if entry["kind"] == "Job"]
    assert names == ["motley-qa-prepare", "motley-qa"]
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
        devices = {"nvidia.com/gpu", "example.org/dongle"}
        assert devices & given["limits"].keys() == (devices if container["name"] == "agent" else set())


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


def test_a_pod_stays_for_some_seconds_where_nobody_answers_and_both_verdicts_of_an_agent_end_the_job() -> None:
    """By itself it stays for minutes. tests/unit/test_kube_rules.py plays the rules of its failures."""
    job = job_of(made())
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [1, 2]
    stays = {one["key"].rpartition("/")[2]: one["tolerationSeconds"] for one in pod(job)["tolerations"]}
    assert stays == {"unreachable": objects.AWAY_S, "not-ready": objects.AWAY_S}
