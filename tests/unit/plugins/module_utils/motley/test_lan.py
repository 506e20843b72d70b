"""When a card has the address that it is to have."""

from __future__ import annotations

import pytest

from plugins.module_utils.motley import lan


@pytest.mark.parametrize(
    ("found", "left", "right"),
    [
        (["192.168.1.31/24"], "192.168.1.31", True),
        (["192.168.1.31/24"], "192.168.1.50", True),
        (["192.168.1.31/24", "10.20.0.5/32"], "192.168.1.50", True),  # of keepalived, or of a script of the owner's
        (["192.168.1.31/24", "192.168.1.50/24"], "192.168.1.50", False),
        (["192.168.1.31/16", "10.20.0.5/32"], "192.168.1.50", False),
        ([], "", False),
    ],
)
def test_the_one_it_is_to_have_is_there_and_the_one_it_leaves_is_not(
    monkeypatch: pytest.MonkeyPatch, found: list[str], left: str, right: bool
) -> None:
    shown = [{"local": one.split("/")[0], "prefixlen": int(one.split("/")[1])} for one in found]
    monkeypatch.setattr(lan, "ip", lambda *_: [{"addr_info": shown}])
    assert lan.carries("enp5s0", "192.168.1.31/24", left) is right
