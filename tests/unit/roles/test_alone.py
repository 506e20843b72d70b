"""A role of a launch, alone in a play of one's own, says which role comes first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

# Those of a plan at the end: a plan that failed is one that was made.
FIRST = {
    "motley_distribute": "motley_plan",
    "motley_render": "motley_request",
    "motley_start": "motley_plan",
    "motley_plan": "motley_request",
}


def test_a_role_alone_says_which_comes_first(tmp_path: Path) -> None:
    one = {
        "block": [{"include_role": {"name": "{{ role }}"}}],
        "rescue": [{"debug": {"msg": "{{ role }}: {{ ansible_failed_result.msg }}"}}],
    }
    (tmp_path / "one.yml").write_text(json.dumps([one]))
    each = {"include_tasks": "one.yml", "loop": [*FIRST], "loop_control": {"loop_var": "role"}}
    (tmp_path / "all.yml").write_text(json.dumps([{"hosts": "gpu-master", "gather_facts": False, "tasks": [each]}]))
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-i", "inventory/loopback", tmp_path / "all.yml", "-e", f"motley_state={tmp_path}"]
    where = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(command, cwd=ROOT, env=where, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if '"msg": "motley_' in line]
    assert len(said) == len(FIRST), done.stdout
    for line, (role, first) in zip(said, FIRST.items(), strict=True):
        assert f'"{role}: ' in line and f"the role {first} comes first" in line, line
