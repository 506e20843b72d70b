"""What a launch writes of how a machine's owner lives with it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from console import render
from console.infra.machines import plan
from tests.unit.train.plan.test_plan import look
from train.errors import BadInput
from train.plan.launch.launch_plan import TrainingNode
from train.plan.settings import step_aside_rules


def test_what_is_set_of_the_launch_and_by_the_owner() -> None:
    values = {"motley_hours": "22:00-07:00", "motley_on_battery": "train", "motley_step_aside": ""}
    found = render.aside_of(values, 5.0, "suspend")
    assert found == step_aside_rules.AsideRules(not_before=5.0, then="suspend", hours="22:00-07:00", on_battery="train")
    assert render.aside_of({}, 0.0) == step_aside_rules.AsideRules()
    with pytest.raises(BadInput, match="then: 'halt' is none of"):
        step_aside_rules.rules({"then": "halt"})


def test_limits_of_a_card_as_the_script_reads_them() -> None:
    assert render.card_limits({"motley_power_limit_w": 250, "motley_max_celsius": 75}) == {"watts": 250, "celsius": 75}
    assert render.card_limits({"motley_max_celsius": 75}) == {"celsius": 75}
    assert render.card_limits({}) == {}


def test_a_process_for_a_card_that_it_could_not_see_is_refused() -> None:
    def checked(shown: object, device: str = "cuda") -> None:
        here = SimpleNamespace(name="a", device=device, processes=2)
        render.require_visible({"CUDA_VISIBLE_DEVICES": shown}, cast(TrainingNode, here))

    said = "CUDA_VISIBLE_DEVICES shows 1 of the 2 cards that a is to compute on\nfix: motley_processes: 1 for a as well"
    with pytest.raises(BadInput, match=said):
        checked(1)
    with pytest.raises(BadInput, match=r"shows 0 of the 2 .*\nfix: motley_gpu: none"):
        checked("-1")
    checked("1,0")
    checked("", device="cpu")


def test_a_machine_that_cannot_switch_itself_off_is_named_before_the_run() -> None:
    looks = {name: look(obeys=name == "a") for name in "ab"}
    hosts: dict[str, Any] = {name: {"motley_plan_look": {"look": look}} for name, look in looks.items()}
    known = {"ansible_play_hosts": [*looks], "hostvars": hosts}
    plan.refuse_deaf(known, {"then": ""})
    said = r"then: nothing on b would do that\nfix: ./motley bootstrap --phase run --nodes b,"
    with pytest.raises(BadInput, match=said):
        plan.refuse_deaf(known, {"then": "suspend"})
    for host in hosts.values():
        host["motley_max_celsius"] = 75
    with pytest.raises(BadInput, match="motley_max_celsius: nothing on b would do that"):
        plan.refuse_deaf(known, {"then": ""})
