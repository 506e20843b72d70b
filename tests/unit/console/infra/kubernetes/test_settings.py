"""What motley_kubernetes_… may be."""

from __future__ import annotations

from typing import Any

import pytest

from console.infra.kubernetes.settings import amount, read
from train.errors import BadInput

GOOD = {"image": f"r.org/motley@sha256:{'0' * 64}", "gpus": "0", "claim": "training", "pods": "3"}


def read_with(**changes: Any) -> Any:
    return read({f"motley_kubernetes_{name}": value for name, value in (GOOD | changes).items()})


def test_as_words_of_a_command_line_too() -> None:
    found = read_with(gpus="1", gpu_gb="24")
    assert (found.pods, found.gpus, found.gpu_gb, found.shared, found.volume_claim) == (3, 1, 24.0, True, "training")
    assert read_with(gpus=1, gpu_type="RTX 3090").card().bytes > 20 << 30


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "motley:latest"}, "motley_kubernetes_image: an image by its digest is needed"),
        ({"pods": "many"}, "motley_kubernetes_pods: 'many' is not a whole number"),
        ({"gpus": 2}, "motley_kubernetes_gpus: 0 or 1"),
        ({"gpus": 1}, "motley_kubernetes_gpu_gb: how many GB"),
        ({"memory": "16 GB"}, "motley_kubernetes_memory: '16 GB' is no quantity"),
        ({"claim": ""}, "motley_kubernetes_storage: one of host_path"),
        ({"storage": "1Gi"}, "one of host_path"),
        ({"claim": "", "host_path": "~/ai-cluster"}, "motley_kubernetes_host_path: a path from the root"),
        ({"tolerations": ["gpu"]}, "motley_kubernetes_tolerations: ['gpu'] is not a list of mappings"),
        ({"tolerations": {"key": "gpu"}}, "is not a list of mappings"),
        ({"labels": "team=ours"}, "motley_kubernetes_labels: 'team=ours' is not a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_where(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as wrong:
        read_with(**changes)
    assert said in str(wrong.value) and "where: inventory/kubernetes/hosts.yml" in str(wrong.value)


@pytest.mark.parametrize(
    ("quantity", "number"), [("500m", 0.5), ("16Gi", 2**34), ("1k", 1000), (4, 4), ("4x", None), ("1.5Mi", 1.5 * 2**20)]
)
def test_quantities(quantity: Any, number: float | None) -> None:
    found = amount(quantity)
    assert (None if found is None else float(found)) == number
