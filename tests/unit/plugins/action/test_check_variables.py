"""A wrong variable is told before anything is changed, with the nodes that have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleUndefinedVariable

from plugins.action.check_variables import errors
from tests.support import ROOT

OPTIONS: dict[str, Any] = {
    "motley_a_port": {"type": "int"},
    "motley_a_folder": {"type": "str", "required": True},
    "motley_a_way": {"type": "str", "choices": ["near", "far"]},
}


class Node(dict[str, Any]):
    """As Ansible gives it: what is made of something unknown is asked for in vain."""

    def get(self, name: str, default: Any = None) -> Any:
        if self.__contains__(name) and self[name] == "{{ later }}":
            raise AnsibleUndefinedVariable("later")
        return super().get(name, default)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"motley_a_folder": "x", "motley_a_port": "12", "other": []}, []),
        ({"motley_a_port": 1}, ["missing required arguments: motley_a_folder"]),
        ({"motley_a_folder": "x", "motley_a_port": "many"}, ["motley_a_port", "int"]),
        ({"motley_a_folder": "x", "motley_a_way": "up"}, ["motley_a_way", "near, far"]),
        ({"motley_a_folder": "{{ later }}", "motley_a_port": 1}, []),
    ],
)
def test_each_is_held_against_its_spec(node: dict[str, Any], words: list[str]) -> None:
    found = "\n".join(errors(OPTIONS, Node(node)))
    assert bool(found) == bool(words) and all(word in found for word in words), found


@pytest.mark.parametrize(
    ("playbook", "wrong"), [("bootstrap", "motley_python_env_manage=maybe"), ("plan", "motley_plan_calibrate=soon")]
)
def test_a_playbook_begins_nothing_with_a_wrong_one(playbook: str, wrong: str) -> None:
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-i", "inventory/loopback", f"playbooks/{playbook}.yml", "-e", "model=tiny", "-e", wrong]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert f"gpu-master, gpu-worker-1, gpu-worker-2: argument '{wrong.partition('=')[0]}'" in said, said
    assert "fix: docs/reference.md" in said and "changed: [" not in said, said
