"""Whether the forks of Ansible find the filters that its first process has loaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import ROOT, pace

FILTERS = """
import os
with open(os.environ["LOADED"], "a") as file:
    print(os.getpid(), file=file)
class FilterModule:
    def filters(self):
        return {"loudly": str.upper}
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - debug: { msg: "{{ inventory_hostname | loudly }}" }
    - debug: { msg: "{{ 'again' | loudly }}" }
"""


def test_filters_are_loaded_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "loudly.py").write_text(FILTERS)
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "hosts.yml").write_text("all: { hosts: { a: {}, b: {}, c: {} } }\n")
    env = dict(os.environ, LOADED=str(tmp_path / "loaded"), ANSIBLE_FILTER_PLUGINS=f"{ROOT}/plugins/filter:{tmp_path}")
    program = Path(sys.executable).parent / "ansible-playbook"
    said = pace.run(program, "-i", tmp_path / "hosts.yml", tmp_path / "play.yml", cwd=ROOT, env=env)
    assert said.returncode == 0 and all(word in said.stdout for word in ("A", "B", "C", "AGAIN")), said.stderr
    assert len((tmp_path / "loaded").read_text().splitlines()) == 1
