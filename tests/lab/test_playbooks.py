"""Any playbook runs unchanged on the lab's hosts over real SSH, and its result is data."""

from pathlib import Path

import pytest

from lab import faults
from tests.support.cluster import Cluster

PLAYBOOK = """
- name: A playbook that knows nothing of the lab
  hosts: cluster
  gather_facts: false
  become: true
  tasks:
    - name: Who is it
      ansible.builtin.command: id -un
      register: who
      changed_when: false
    - name: Leave a file
      ansible.builtin.copy: {content: "{{ inventory_hostname }}\\n", dest: /etc/motley-test, mode: "0644"}
"""


def test_it_changes_once_and_then_nothing(trio: Cluster, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    first = trio.play(playbook)
    assert first.rc == 0, first.stdout
    assert {result["stdout"] for result in first.of_task("Who is it").values()} == {"root"}
    assert first.changed() == dict.fromkeys(("gpu-master", "gpu-worker-1", "gpu-worker-2"), 1)
    for host in trio.hosts:
        assert host.run("cat", "/etc/motley-test") == f"{host.name}\n"
    assert set(trio.play(playbook).changed().values()) == {0}
    assert "WARNING" not in first.stdout


@pytest.mark.long  # roles/test_when_it_breaks.py has a node that is off
def test_an_unreachable_host_does_not_stop_the_others(trio: Cluster, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    faults.inject(trio.lab, trio["gpu-worker-1"], "power-cut")
    played = trio.play(playbook, envvars={"ANSIBLE_TIMEOUT": "3"})
    assert played.stats["dark"] == {"gpu-worker-1": 1}
    assert played.stats["ok"]["gpu-master"] == 2
    faults.fix(trio.lab, trio["gpu-worker-1"], "power-cut")
