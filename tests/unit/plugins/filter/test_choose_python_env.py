"""One set for the whole cluster: by the driver phase's plan, never mixed, whatever is run for which nodes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.filter.choose_python_env import (
    motley_env_choice,
    motley_env_itself,
    motley_env_others,
    motley_env_record,
)
from plugins.module_utils.motley.env_files import of_lock, of_wheel

GPU, OLD = ["node-gpu", "unsloth"], ["node-gpu-r570", "unsloth"]
PLAN_580 = {"set": "node-gpu", "branch": "580", "nodes": {"a": "580", "b": "580"}}
PLAN_570 = {"set": "node-gpu-r570", "branch": "570", "nodes": {"a": "570"}}


def choice(drivers: list[str], **known: Any) -> dict[str, Any]:
    return motley_env_choice(list("abcd")[: len(drivers)], [{"driver": driver} for driver in drivers], **known)


@pytest.mark.parametrize(
    ("drivers", "known", "sets"),
    [
        (["", ""], {}, ["node-cpu"]),
        (["580.95.05", "580.95.05"], {"plan": PLAN_580}, GPU),
        (["580.95.05", ""], {"plan": PLAN_580}, GPU),  # also the node that has no card: nothing is mixed
        (["", ""], {"plan": PLAN_580}, GPU),  # installed, not loaded yet: what is loaded now is not asked
        (["580.95.05"], {"plan": PLAN_570}, OLD),  # the plan, not what would be possible here
        (["580.95.05", "570.195.03"], {}, OLD),  # nobody planned: the oldest driver decides
        (
            ["580.95.05"],
            {"plan": {"set": "node-cpu", "nodes": {}}},
            GPU,
        ),  # the plan knows of no card: it planned nothing
        (["580.95.05"], {"insisted": ["node-cpu"]}, ["node-cpu"]),
        (["580.95.05"], {"others": {"sets": OLD, "nodes": ["x"]}}, OLD),
    ],
)
def test_one_choice(drivers: list[str], known: dict[str, Any], sets: list[str]) -> None:
    assert choice(drivers, **known) == {"sets": sets}


def test_a_driver_that_cannot_carry_the_plan_is_named() -> None:
    refused = choice(["580.95.05", "570.195.03"], plan=PLAN_580)
    assert refused["error"] == "b runs driver 570.195.03; torch of node-gpu needs 580.65.06"
    assert "--phase gpu_driver" in refused["fix"]
    assert "error" in choice(["535.10.1"]), "older than any set"


def test_a_limited_run_does_not_leave_the_others() -> None:
    refused = choice(["580.95.05"], plan=PLAN_580, others={"sets": OLD, "nodes": ["x", "y"]})
    assert refused["error"] == "x, y have node-gpu-r570 + unsloth, now it would be node-gpu + unsloth"
    assert "without --nodes" in refused["fix"]
    assert "error" in choice([""], insisted=["small"], others={"sets": ["node-cpu"], "nodes": ["x"]})


def test_the_record_keeps_others_and_forgets_who_is_gone() -> None:
    record = motley_env_record(motley_env_record({}, GPU, ["a", "b"]), GPU, ["c"])
    assert record == {"sets": GPU, "nodes": ["a", "b", "c"]}
    assert motley_env_others(record, ["a", "c"], ["a"]) == {"sets": GPU, "nodes": ["c"]}, (
        "b is no longer in the cluster"
    )
    assert motley_env_others(record, ["a", "b", "c"], ["a", "b", "c"]) == {}
    assert motley_env_record(record, [], ["a", "b", "c"]) == {}


STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from("abc"), min_size=1),
        st.sampled_from([{}, PLAN_570, PLAN_580]),
        st.lists(st.sampled_from(["", "570.195.03", "580.95.05", "590.1"]), min_size=3, max_size=3),
    ),
    max_size=6,
)


@given(STEPS)
def test_no_sequence_of_runs_mixes_sets(steps: list[tuple[set[str], dict[str, Any], list[str]]]) -> None:
    """Whole runs and limited ones in any order, with drivers and plans that change between them."""
    has: dict[str, list[str]] = {}
    record: dict[str, Any] = {}
    for chosen, plan, drivers in steps:
        names = sorted(chosen)
        others = motley_env_others(record, list("abc"), names) if len(names) < 3 else {}
        looks = [{"driver": drivers["abc".index(name)]} for name in names]
        made = motley_env_choice(names, looks, plan, [], others)
        if "error" not in made:
            record = motley_env_record(record, made["sets"], names)
            has |= {name: made["sets"] for name in names}
        assert len({tuple(sets) for sets in has.values()}) <= 1


def test_a_machine_that_fetches_its_wheels_itself_gets_the_locks_with_their_hashes(tmp_path: Path) -> None:
    lock = "numpy==2.4.6 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    lock += 'colorama==0.4.6 ; sys_platform == "win32" --hash=sha256:cc\n'
    look = {"python": "3.12", "machine": "x86_64"}
    (tmp_path / "node-gpu.txt").write_text(lock)
    (tmp_path / "node-cpu.txt").write_text(lock)
    (tmp_path / "torch-cpu.txt").write_text("torch==2.13.0+cpu\n")
    (gpu,) = motley_env_itself(["node-gpu"], look, str(tmp_path))
    assert gpu["hashed"]
    assert "numpy==2.4.6 --hash=sha256:aa" in gpu["text"]
    assert "--hash=sha256:bb" in gpu["text"]
    assert "colorama" not in gpu["text"], "what another system needs is left out"
    cpu = motley_env_itself(["node-cpu"], look, str(tmp_path))
    assert [part["hashed"] for part in cpu] == [True, False], "the CPU's torch is pinned without a hash"


def test_a_line_of_a_lock_and_a_wheel_name_a_package_alike() -> None:
    assert of_lock("huggingface-hub==1.33.0 --hash=sha256:aa") == of_wheel("huggingface_hub-1.33.0-py3-none-any.whl")
