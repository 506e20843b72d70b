"""Files from the controller to all nodes of a lab, by the role that does it."""

from pathlib import Path

from tests.support.cluster import REPOSITORY, Cluster, Played

PLAYBOOK = """
- name: Hand files on
  hosts: cluster
  gather_facts: false
  roles: [motley_artifacts]
"""


def hand_on(cluster: Cluster, source: Path, **settings: object) -> Played:
    playbook = REPOSITORY / "playbooks" / f".test-artifacts-{cluster.lab.place.name}.yml"
    playbook.write_text(PLAYBOOK)
    settings = {"motley_artifacts_source": str(source), "motley_artifacts_folder": "~/files", **settings}
    try:
        return cluster.play(playbook, extravars={"motley_state_folder": str(cluster.folder), **settings})
    finally:
        playbook.unlink()
