"""A playbook under make has a terminal of its own, which nobody sees: what it would ask there is a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from console.inventory.read import Inventory
from console.playbook import run_playbook
from console.playbook.ask_passwords import Passwords

ROOT = Path(__file__).parents[3]
FOUND = {"strangers": ["late"], "contacts": {"late": {"address": "192.0.2.1", "fingerprint": "SHA256:abc"}}}


def test_a_machine_that_came_on_after_the_first_look_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "ansible.cfg", tmp_path)
    for name in ("plugins", "console", "roles"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "playbooks").mkdir()
    asks = {"ansible.builtin.include_role": {"name": "motley_contact", "tasks_from": "ask_about_new_keys"}}
    book = {"hosts": "cluster", "gather_facts": False, "tasks": [asks], "vars": {"motley_contact_found": FOUND}}
    (tmp_path / "playbooks/trial.yml").write_text(yaml.safe_dump([book]))
    node = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"hosts": {"late": node}}}))
    nodes = {"late": {**node, "motley_state": str(tmp_path / "state")}}
    inventory = Inventory(path=tmp_path / "hosts.yml", nodes=nodes)
    monkeypatch.setattr(run_playbook, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # to which it adds the folder of Ansible's programs
    request = run_playbook.PlaybookRun(verb="trial", playbook="trial", inventory=inventory)
    assert run_playbook.run(request, Passwords("typed", "typed")) == 1
    said = capfd.readouterr().out
    assert "the host keys of late were not accepted" in said, said
    assert "fix: nobody could be asked: ./motley bootstrap" in said, said
