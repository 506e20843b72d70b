"""Judging versions: the odd node is named with its fix, and causes are told from what follows from them."""

import pytest

from console.check_versions import as_data, last_line, table
from train.plan.machines.odd_versions import judge

GOOD = {
    "os": "Debian GNU/Linux 12 (bookworm)",
    "kernel": "6.1.0-1",
    "python": "3.11.2",
    "environment": "50729b9b53ec",
    "torch": "2.13.0",
    "cuda": "13.0",
    "nccl": "2.29.7",
    "transformers": "5.17.0",
    "train": "abc",
    "driver": "580.95.05",
    "driver_library": "580.95.05",
    "driver_on_disk": "580.95.05",
    "model smollm2": "1234",
}
NO_DRIVER = dict.fromkeys(("driver", "driver_library", "driver_on_disk"))
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")


def cluster(**odd: dict[str, str | None]) -> dict[str, dict[str, str | None]]:
    return {node: GOOD | odd.get(node.replace("-", "_"), {}) for node in NODES}


def test_equal_nodes_are_good() -> None:
    verdict = judge(cluster())
    assert verdict.ok and last_line(verdict) == "all that must agree agrees on 3 nodes · exit 0"
    assert as_data(verdict)["failures"] == []


@pytest.mark.parametrize(
    "odd",
    [
        {"kernel": "6.8.0-45", "os": "Ubuntu 24.04"},
        {"python": "3.11.9"},
        {"driver": "580.82.07", "driver_library": "580.82.07", "driver_on_disk": "580.82.07"},
        NO_DRIVER,  # no graphics card
        {"model smollm2": None, "data chat": "77"},  # a run on the others alone, and one of its own
    ],
)
def test_what_may_differ_may_differ(odd: dict[str, str | None]) -> None:
    assert judge(cluster(gpu_worker_2=odd)).ok


@pytest.mark.parametrize(
    ("odd", "key", "fix"),
    [
        ({"python": "3.13.1"}, "python", "same release of the system on gpu-worker-2"),
        ({"driver_library": "580.105.08"}, "driver_library", "sudo reboot on gpu-worker-2"),
        (NO_DRIVER | {"driver": "570.1"}, "driver", "--phase gpu_driver"),
        (NO_DRIVER | {"driver": "not loaded"}, "driver", "--phase gpu_driver --nodes gpu-worker-2"),
        ({"environment": "50729b9b53ec, changed: torch"}, "environment", "--phase python_env --nodes gpu-worker-2"),
        ({"environment": None}, "environment", "--phase python_env"),
        ({"train": "def"}, "train", "--phase workspace --nodes gpu-worker-2"),
        ({"model smollm2": "9999"}, "model smollm2", "models/base/smollm2 on gpu-worker-2"),
    ],
)
def test_the_odd_one_is_named_with_its_mend(odd: dict[str, str | None], key: str, fix: str) -> None:
    verdict = judge(cluster(gpu_worker_2=odd))
    assert [(entry.node, entry.key) for entry in verdict.odd] == [("gpu-worker-2", key)]
    assert fix in verdict.odd[0].fix_on()
    row = next(line for line in table(verdict) if line.split("  ")[1] == key.replace("_", " "))
    assert "✗ gpu-worker-2" in row and fix in row


def test_the_head_can_be_the_odd_one() -> None:
    verdict = judge(cluster(gpu_master={"torch": "2.10.0"}))
    assert [entry.node for entry in verdict.odd] == ["gpu-master"]
    assert verdict.odd[0].expected == "2.13.0"
    assert verdict.odd[0].what == "is 2.10.0, the others 2.13.0"


def test_of_two_the_one_with_the_untouched_environment_is_right() -> None:
    pair = {name: cluster()[name] for name in NODES[:2]}
    pair["gpu-master"] |= {"torch": "2.10.0", "environment": "50729b9b53ec, changed: torch"}
    assert {entry.node for entry in judge(pair).odd} == {"gpu-master"}


def test_a_library_without_its_module_follows_the_driver() -> None:
    """A node whose card has no driver would train on its processor, silently."""
    verdict = judge(cluster(gpu_worker_1={"driver": "not loaded"}))
    assert {entry.cause for entry in verdict.odd} == {"driver"}
    assert verdict.odd[0].what == "is not loaded, the others 580.95.05"
    most = judge(cluster(gpu_worker_1={"driver": "not loaded"}, gpu_worker_2={"driver": "not loaded"}))
    assert [entry.node for entry in most.odd if entry.key == "driver"] == ["gpu-worker-1", "gpu-worker-2"]


def test_effects_follow_their_cause() -> None:
    odd = {"environment": "50729b9b53ec, changed: torch", "torch": "2.10.0", "cuda": "12.8", "nccl": "2.27.5"}
    verdict = judge(cluster(gpu_worker_1=odd))
    assert {entry.cause for entry in verdict.odd} == {"environment"}
    assert last_line(verdict) == "1 cause, 4 rows · exit 1"
    assert sum("→" in line for line in table(verdict)) == 1


def test_changed_alike_on_all_nodes_is_still_changed() -> None:
    odd = {"environment": "50729b9b53ec, changed: torch"}
    verdict = judge(cluster(gpu_master=odd, gpu_worker_1=odd, gpu_worker_2=odd))
    assert len(verdict.odd) == 3


def test_a_changed_file_is_not_called_another_version() -> None:
    odd = {"environment": "50729b9b53ec, changed: numpy (numpy/version.py)"}
    (entry,) = as_data(judge(cluster(gpu_worker_1=odd)))["failures"]
    assert entry["what"] == "is not as it was installed" and "numpy/version.py" in entry["value"]


def test_nothing_installed_is_said() -> None:
    bare = {"os": "Debian", "kernel": "6", "python": "3.11.2"}
    verdict = judge({node: {**dict.fromkeys(GOOD), **bare} for node in NODES})
    text = "\n".join(table(verdict))
    assert "all nodes: there is no environment yet → ./motley bootstrap --phase python_env" in text
    assert "torch" not in text and not verdict.ok


def test_a_node_that_is_off_is_no_success() -> None:
    seen = cluster()
    del seen["gpu-worker-2"]
    verdict = judge(seen, {"gpu-worker-2": "nobody answers"})
    assert not verdict.ok and "1 not looked at" in last_line(verdict)
