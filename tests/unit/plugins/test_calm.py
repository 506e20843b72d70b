"""What a launch says of a task that failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from plugins.callback.calm import spoken

WHOLE = "motley_request: Check\n  [Errno 36] File name too long\n  fix: --verbose shows all that Ansible says; "


@pytest.mark.parametrize(
    ("action", "result", "words"),
    [
        pytest.param("launch_look", {"msg": "it is on\nfix: stop it"}, "it is on\nfix: stop it", id="our own sentence"),
        pytest.param(
            "launch_look",
            {"msg": "Task failed: [Errno 36] File name too long"},
            f"{WHOLE}./motley doctor whether something is wrong with a machine",
            id="an exception: no phase of bootstrap mends it",
        ),
    ],
)
def test_a_failed_task_is_told_with_what_to_do(action: str, result: dict[str, str], words: str) -> None:
    task = SimpleNamespace(action=action, get_name=lambda: "motley_request : Check")
    assert spoken(task, result) == words
