"""What a launch on somebody else's Slurm brings there, and what it says of that."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import yaml

from console.infra.slurm import plan
from console.infra.slurm.files import SlurmPlan
from tests.support import ROOT


def look(*cards: str) -> dict[str, Any]:
    nodes = [{"name": "n1", "cards": []}, {"name": "n2", "cards": list(cards)}]
    return {"nodes": nodes, "partition": "gpu", "start": "2026-11-23T19:00:00", "home": "/shared/anna"}


@pytest.mark.parametrize(
    ("cards", "insisted", "sets"),
    [
        ((), None, ["node-cpu"]),
        (("a100",), None, ["node-gpu", "unsloth"]),
        (("a100",), ["node-gpu-r570", "unsloth"], ["node-gpu-r570", "unsloth"]),
    ],
)
def test_the_nodes_of_the_job_decide_on_the_environment(
    cards: tuple[str, ...], insisted: list[str] | None, sets: list[str]
) -> None:
    """The login node has no card in any of these."""
    assert plan.sets_of(look(*cards), insisted) == sets


def test_an_environment_that_is_brought_is_named() -> None:
    where, brings = plan.slurm_lines(look(), ["node-gpu", "unsloth"])
    assert "2 of partition gpu: n1, n2" in where
    assert brings.strip() == "brings    the environment (node-gpu + unsloth) to /shared/anna, once for all nodes"
    assert plan.slurm_lines(look(), []) == [where]


@pytest.mark.parametrize(("sets", "device"), [(["node-gpu", "unsloth"], "cuda"), (["node-cpu"], "cpu")])
def test_a_first_launch_is_planned_with_the_environment_that_it_brings(sets: list[str], device: str) -> None:
    """Nothing is there yet."""
    node = {"name": "n1", "address": "10.0.0.1", "cards": ["a100_80gb"], "cores": 8, "memory_bytes": 1 << 36}
    seen = look() | {"nodes": [node | {"processes": 1}], "free_bytes": 1 << 40, "runs": {}}
    absent: dict[str, Any] = dict.fromkeys(("environment", "cuda", "unsloth", "train"), None)
    versions = plan.with_brought(absent | {"python": "3.11.2", "machine": "x86_64"}, sets)
    facts = plan.facts_of(seen, versions, {"of_infra": {}, "sweep": []}, {})
    found, _ = plan.plan_all({"values": {"model": "tiny"}, "sweep": []}, facts)
    assert [node.device.device for node in found.nodes] == [device]


def test_what_a_plan_brings_is_brought_by_the_role_that_brings_all_else() -> None:
    """A launch on Slurm is long to play: without this step a first one finds no Python there."""
    tasks = yaml.safe_load((ROOT / "roles/motley_distribute/tasks/lacking.yml").read_text())
    first = tasks[0]
    assert first["ansible.builtin.include_role"]["name"] == "motley_python_env"
    for field in ("lack_environment", "environment_sets"):
        assert field in {spec.name for spec in fields(SlurmPlan)} and field in str(first), field
