"""Why no machine was met where one was to be: what first contact says of those that gave no host key."""

from __future__ import annotations

import pytest

from plugins.action.first_contact import knock_of
from plugins.module_utils.motley import hostkeys
from plugins.module_utils.motley.hostkeys import NodeAddresses


@pytest.mark.parametrize(
    ("heard", "options", "why"),
    [
        ("nobody", "-J jump", "behind"),
        ("nobody", "", "nobody"),
        ("closed", "-J jump", "closed"),  # what answers at its address is there
    ],
)
def test_a_machine_that_is_silent_may_be_behind_another(
    heard: str, options: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostkeys, "knock", lambda *_: heard)
    monkeypatch.setattr(hostkeys, "is_behind", lambda _, of_ssh: "-J" in of_ssh)
    assert knock_of(NodeAddresses("desktop", ("192.168.1.9",), options=options)) == why
