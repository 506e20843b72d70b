"""What a launch learns of a node's cards."""

from typing import Any

import pytest

from console.electricity import limit_of
from plugins.modules import launch_info

SHOWN = {
    "name": "RTX 4070",
    "memory.total": "12282",
    "memory.used": "300",
    "compute_cap": "8.9",
    "power.limit": "200.00",
}


def test_the_plan_learns_the_power_limit_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(_: str, fields: list[str], **__: Any) -> list[dict[str, str]]:
        return [{field: SHOWN[field] for field in fields}]

    monkeypatch.setattr(launch_info.nvidia_smi, "table", table)
    [card] = launch_info.cards()
    assert (card["bytes"] >> 20, card["used"] >> 20, card["capability"]) == (12282, 300, "8.9")
    assert limit_of([card]) == 200
