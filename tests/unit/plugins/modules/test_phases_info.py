"""The phases' own modules, each in check mode and in a process of its own: what they would do, which they do not."""

import os
import pwd
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.motley import documented

from plugins.modules.phases_info import MODULES, answers, ask, would

ME = pwd.getpwuid(os.getuid()).pw_name


def state(path: Path, content: str, **more: Any) -> dict[str, Any]:
    file = {"path": str(path), "content": content, "owner": ME}
    return {"module": "undoable_state", "args": {"phase": "x", "files": [file]}, **more}


def setting(*check: str) -> dict[str, Any]:
    settle = [{"check": list(check), "run": ["false"]}]
    return {"module": "undoable_state", "args": {"phase": "x", "settle": settle}}


def test_a_call_would_do_something_or_nothing_and_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine\n")
    path.chmod(0o644)
    assert would([ask(state(path, "mine\n"), None)]) == ""
    assert would([ask(state(path, "ours\n"), None)]) and path.read_text() == "mine\n"
    assert would([ask(setting("true"), None)]) == "" and would([ask(setting("false"), None)])
    assert documented.Looking.arguments is None, "this process is not one of a call"


def test_what_cannot_be_looked_at_would_do_something(tmp_path: Path) -> None:
    unknown = {"module": "undoable_state", "args": {"phase": "x", "fils": []}}
    assert "fils" in would([ask(unknown, None)])
    assert "KeyError" in would([ask({"module": "no_such", "args": {}}, None)])
    stranger = state(tmp_path / "file", "")
    stranger["args"]["files"][0]["owner"] = "nobody-of-that-name"
    assert "nobody-of-that-name" in would([ask(stranger, None)])


def test_an_answer_that_cannot_be_sent_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ModuleType("odd")
    odd.main = lambda: documented.Looking({}, {}).exit_json(found=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(MODULES, "odd", odd)
    assert would([ask({"module": "odd", "args": {}}, None)]) == "odd gave no answer"


def test_what_follows_a_change_is_not_asked(tmp_path: Path) -> None:
    assert len(answers([setting("false"), setting("true")], ME)) == 1
    assert len(answers([setting("true"), setting("true")], ME)) == 2


def test_a_call_may_depend_on_the_answer_before_it() -> None:
    first, then = setting("sh", "-c", "echo word"), {**setting("false"), "only_with": "ran"}
    assert len(answers([first, then], ME)) == 1  # nothing was run
    assert len(answers([first, {**then, "only_with": "found"}], ME)) == 2


def test_a_users_own_is_looked_at_as_that_user(tmp_path: Path) -> None:
    home = pwd.getpwnam(ME).pw_dir
    call = {"module": "python_env", "user": True, "args": {"home": "~/no-such-cluster", "step": "look"}}
    found = ask(call, pwd.getpwnam(ME))
    assert found["why"] == "there is no environment yet" and not Path(home, "no-such-cluster").exists()
