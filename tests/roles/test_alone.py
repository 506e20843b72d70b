"""A role in a play of one's own: it looks at the machine itself where nothing has, or takes what was found before."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.profile import PASSWORD
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster, Played

ROLES = Path(__file__).parents[2] / "roles"


@pytest.fixture(scope="module")
def person(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return Person.with_inventory(pair, tmp_path_factory.mktemp("person"))


def plays(person: Person, role: str, words: str = "", **more: object) -> Played:
    """With a tag of one's own, which asks for nothing else."""
    file = person.folder / "mine.yml"
    file.write_text(f"[{{hosts: cluster, gather_facts: false, roles: [{{role: motley_{role}, tags: [mine]}}]}}]")
    variables = {
        "ansible_password": PASSWORD,
        "ansible_become_password": PASSWORD,
        "motley_contact_accept": True,
    } | more
    return person.cluster.play(
        file,
        person.inventory,
        cmdline=f"--tags mine {words}",
        extravars=variables | more,
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
    said = plays(person, "hostname")
    assert said.rc == 0 and all(said.changed().values()), said.stdout


def test_a_clock_is_judged_as_its_time_service_has_set_it_not_as_it_was_found(person: Person) -> None:
    good, off = (host.name for host in person.cluster.hosts)
    # The hosts of a lab share one clock: what was found before is made up, what is looked at now is real.
    found = {"clock_off_s": -3600.0, "node": {"time_service": "systemd-timesyncd.service"}}
    most_s = f"{{{{ -1 if inventory_hostname == '{off}' else 30 }}}}"  # no clock is as good as the first
    said = plays(
        person,
        "clock",
        ansible_host="{{ motley_current_address }}",
        motley_preflight_look=found,
        motley_clock_manage=False,
        motley_clock_skew_max_s=most_s,
        motley_clock_wait_s=2,
    )
    failed = [result for result in said.results if result["event"] == "runner_on_failed"]
    assert {result["host"] for result in failed} == {off}, said.stdout
    assert "its clock is 0.0 s off the controller's" in failed[-1]["result"]["msg"]
    assert said.stats["ok"][good] > 0
