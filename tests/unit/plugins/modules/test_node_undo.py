"""What an undo says where a command of its record does not work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from plugins.module_utils.motley.undo_record import Before
from plugins.modules import node_undo


def fails(**result: Any) -> NoReturn:
    raise SystemExit(result["msg"])


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["ufw-that-is-gone", "delete", "allow"], "there is no ufw-that-is-gone"),
        (["sh", "-c", "echo no such unit >&2; exit 1"], "no such unit"),
        (["false"], "exit code 1"),
    ],
)
def test_a_command_that_does_not_work_is_named_with_the_reason(command: list[str], why: str, tmp_path: Path) -> None:
    before = Before("firewall", tmp_path)
    before.keep_undo(command)
    module: Any = SimpleNamespace(params={"phase": "firewall"}, fail_json=fails)
    with pytest.raises(SystemExit) as said:
        node_undo.switch_off(module, before)
    assert str(said.value).splitlines()[0] == f"'{' '.join(command)}' failed: {why}"
    assert "then again: ./motley undo --phase firewall" in str(said.value)
    assert before.data["undo"] == [command]
