"""A launch on Kubernetes, with settings as Ansible gives them and answers as a real API server (1.36) gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from console.infra.kubernetes import files, plan, settings, start
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.node import KubernetesNode
from console.infra.node import Silent
from tests.support.kube_choices import wrong
from tests.support.kube_server import IMAGE, PORTS, Server, plan_of
from train.errors import BadInput

PLAN = plan_of()
HOSTS = f"""
motley_kubernetes_image: {IMAGE}
motley_kubernetes_storage: 100Gi
motley_kubernetes_gpu_gb: 24
motley_kubernetes_limits: {{cpu: 8}}
motley_kubernetes_tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
motley_kubernetes_environment: {{NCCL_DEBUG: INFO, OMP_NUM_THREADS: 2}}
"""


def test_settings_as_ansible_gives_them_are_written(tmp_path: Path) -> None:
    """Its texts and numbers are tagged: subclasses, which no yaml.safe_dump takes."""
    values: dict[str, Any] = DataLoader().load(HOSTS)
    assert type(values["motley_kubernetes_limits"]["cpu"]) is not int
    file = tmp_path / "qa.yaml"
    files.write(PLAN, settings.read(values), file, PORTS, token="secret", hub_token="")
    job = [entry for entry in yaml.safe_load_all(file.read_text()) if entry["kind"] == "Job"][-1]
    pod = job["spec"]["template"]["spec"]
    assert pod["tolerations"][-1] == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert pod["containers"][0]["resources"]["limits"]["cpu"] == 8
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in pod["containers"][0]["env"]


SETTINGS = settings.read(DataLoader().load(HOSTS))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(Cluster, "is_there", True)
    return Cluster(("kubectl",))


def test_only_the_runs_token_is_in_a_file_once_the_cluster_has_the_secrets(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run's own stays: what is applied again is the same run."""
    applied = []

    def kube(words: Any, verb: str, *more: str, **_: Any) -> str:
        if verb == "apply":
            applied.append(Path(more[-1]).read_text())
        return '{"items": []}'

    monkeypatch.setattr(KubernetesNode, "kube", kube)
    file = tmp_path / "qa.yaml"
    files.write(PLAN, SETTINGS, file, PORTS, token="secret", hub_token="hf_secret", messages="https://me")
    start.apply("qa", file, cluster)
    left = file.read_text()
    assert all(secret in applied[0] and secret not in left for secret in ("hf_secret", "https://me"))
    assert left.startswith("# Run qa on Kubernetes")
    secrets = [one["stringData"] for one in yaml.safe_load_all(left) if one["kind"] == "Secret"]
    assert [*secrets[0]] == ["token"] and file.stat().st_mode & 0o777 == 0o600


def test_the_plan_sends_the_pods_too_whom_a_namespace_judges(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It judges no Job by a quota or by pod security, only its pods."""
    refused = 'pods "motley-qa-tried" is forbidden: failed quota: q: must specify limits.cpu for: agent'
    sent: list[dict[str, Any]] = []

    def kube(words: Any, verb: str, *more: str, given: str = "", **_: Any) -> str:
        if verb == "apply":
            sent.extend(yaml.safe_load_all(given))
            raise Silent(f'Error from server (Forbidden): error when creating "STDIN": {refused}')
        return json.dumps({"items": []})

    monkeypatch.setattr(KubernetesNode, "kube", kube)
    with pytest.raises(BadInput, match=r"must specify limits\.cpu for: agent"):
        plan.try_out(PLAN, SETTINGS, cluster, PORTS)
    pods = [one for one in sent if one["kind"] == "Pod"]
    jobs = [one for one in sent if one["kind"] == "Job"]
    assert [one["spec"] for one in pods] == [one["spec"]["template"]["spec"] for one in jobs] and len(pods) == 2
    assert [wrong(one) for one in pods] == [[], []]


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("Error in configuration: context was not found for specified context: nope", "motley_kubernetes_context in"),
        ("kubectl gave no answer within 60 s", "see: kubectl cluster-info"),
    ],
)
def test_where_nothing_can_be_asked_the_place_to_mend_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, why: str, fix: str
) -> None:
    """Nothing that a person cannot type: what is applied goes to kubectl's standard input."""

    def kube(words: Any, verb: str, *more: str, **_: Any) -> str:
        if verb == "apply" or "context" in why:
            raise Silent(why)
        return json.dumps({"items": []})

    monkeypatch.setattr(KubernetesNode, "kube", kube)
    with pytest.raises(BadInput) as refused:
        plan.try_out(PLAN, SETTINGS, cluster, PORTS)
    assert fix in str(refused.value) and "by hand" not in str(refused.value)
    assert "does not answer" not in str(refused.value)


def test_by_hand_a_run_is_stopped_without_anything_left(tmp_path: Path) -> None:
    """Its Job first, so that its agents save while they still know each other."""
    cluster = Cluster(("kubectl", "--context=lab", "--namespace=ml"))
    server, commands = Server(), [line.partition("(")[0].split() for line in files.by_hand("qa", tmp_path, cluster)]
    for name, program, *words in commands[3:]:
        assert program == "kubectl" and words[:2] == ["--context=lab", "--namespace=ml"]
        server(*words[2:])
        assert not [one for one in server.left() if one.startswith(("Job", "Pod"))], name
    assert not server.left()
