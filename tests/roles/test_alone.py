"""A role in a play of one's own: it looks at the machine itself where nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.profile import PASSWORD
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster, Played

ROLES = Path(__file__).parents[2] / "roles"


@pytest.fixture(scope="module")
def person(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(pair, tmp_path_factory.mktemp("person"))
    person.writes()
    return person


def plays(person: Person, role: str, words: str) -> Played:
    """With a tag of one's own, which asks for nothing else."""
    file = person.folder / "mine.yml"
    file.write_text(f"[{{hosts: cluster, gather_facts: false, roles: [{{role: motley_{role}, tags: [mine]}}]}}]")
    variables = {"ansible_password": PASSWORD, "ansible_become_password": PASSWORD, "motley_contact_accept": True}
    return person.cluster.play(
        file,
        person.inventory,
        cmdline=f"--tags mine {words}",
        extravars=variables,
        envvars={"ANSIBLE_ROLES_PATH": str(ROLES)},
    )


SELDOM = [
    pytest.param(role, marks=pytest.mark.long)
    for role in ("ssh_trust", "static_ip", "clock", "power", "gpu_driver", "run")
]
"""They find out about the machine as firewall does."""


@pytest.mark.parametrize("role", ["firewall", *SELDOM])
def test_a_role_alone_says_what_it_would_do(person: Person, role: str) -> None:
    said = plays(person, role, "--check")
    # An installer leaves the time service as we do, and a lab's host has no card.
    assert said.rc == 0 and (role in ("clock", "gpu_driver") or all(said.changed().values())), said.stdout


def test_a_role_alone_does_it(person: Person) -> None:
    said = plays(person, "hostname", "")
    assert said.rc == 0 and all(said.changed().values()), said.stdout
