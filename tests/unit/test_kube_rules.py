"""The stand-ins for a Kubernetes judge as a real API server does."""

from __future__ import annotations

import pytest

from tests.support.kube_rules import refused, selects
from tests.unit.console.kubernetes.test_check import VOLUME, job_of, made

LABELS = {"motley/run": "motley-qa", "motley/part": "agent"}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("motley/run=motley-qa", True),
        ("motley/run==motley-qa,motley/part=agent", True),
        ("motley/run=motley-qa,motley/part!=agent", False),
        ("motley/other!=x", True),
        ("motley/part", True),
        ("!motley/part", False),
        ("motley/run=", False),
    ],
)
def test_labels_are_selected_by_the_rules_of_the_server(selector: str, chosen: bool) -> None:
    assert selects(selector, LABELS) is chosen


@pytest.mark.parametrize("selector", ["motley/run=a b", "a=b=c", "motley/run=-x", "!a=b"])
def test_a_selector_that_it_cannot_read_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement"):
        selects(selector, LABELS)


def test_a_namespace_judges_pods() -> None:
    def pod(**asked: object) -> dict[str, object]:
        template = job_of(made(**asked))["spec"]["template"]
        return {"kind": "Pod", "metadata": template["metadata"] | {"name": "motley-qa-0-a"}, "spec": template["spec"]}

    quota = {"quota": ["limits.cpu", "requests.memory"]}
    assert refused(pod(**VOLUME), quota).endswith("failed quota: q: must specify limits.cpu for: wait,agent")
    assert not refused(pod(**VOLUME, limits={"cpu": 8}), quota)
    strict = {"security": "restricted"}
    assert not refused(pod(**VOLUME), strict), "a volume that all pods write is allowed there"
    own = pod(host_path="/srv/ai-cluster", gpu_gb=24)
    assert refused(own, strict).endswith('(volume "home" uses restricted volume type "hostPath")')
    assert refused(own, {"security": "baseline"}) and not refused(own, {})
