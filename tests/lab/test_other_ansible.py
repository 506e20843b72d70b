"""Other releases of ansible-core: the newest runs our playbooks without a warning, one that is too old says so at once.

The newest runs on a controller that is a Debian 13, or Debian's next release, as far as its Python goes: the lab's own
base systems, with an environment made there by requirements/make_env.sh.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.profile import PASSWORD
from lab.shell import LabError
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, Cluster
from tests.support.other_controller import Seat, seat

CACHE = Path(os.environ.get("MOTLEY_CACHE", Path.home() / ".cache/motley"))
ON = {"trixie": "controller-newest", "forky": "controller"}
"""Base system -> what is locked for it: what a person gets on Python 3.14 is the newest already."""


@pytest.fixture(scope="module", params=[pytest.param(suite, marks=pytest.mark.long) for suite in ON])
def newest(request: pytest.FixtureRequest, lab_allowed: None) -> Seat:
    try:
        return seat(request.param, ON[request.param])
    except LabError as wrong:
        pytest.skip(f"NOT RUN: {wrong}")


def test_newest_takes_a_machine_through_two_phases_without_a_warning(
    pair: Cluster, newest: Seat, tmp_path: Path
) -> None:
    person = Person(pair, tmp_path)
    inventory = person.writes()
    secret = {"ansible_password": PASSWORD, "ansible_become_password": PASSWORD, "motley_contact_accept": True}
    phase = {"tags": "ssh_trust,power", "extravars": secret}
    played = pair.play("playbooks/bootstrap.yml", inventory, python=newest.python(tmp_path.parent), **phase).went_well()
    assert set(played.changed()) >= {host.name for host in pair.hosts}, played.stdout
    assert "WARNING" not in played.stdout and "DEPRECATION" not in played.stdout, played.stdout


def test_newest_reads_every_playbook_without_a_warning(newest: Seat) -> None:
    playbooks = [REPOSITORY / "launch.yml", *sorted((REPOSITORY / "playbooks").glob("[a-z]*.yml"))]
    read = ["-m", "ansible.cli.playbook", "--syntax-check", "-i", "inventory/loopback", *playbooks]
    done = subprocess.run(
        [*map(str, newest.python(REPOSITORY)), *map(str, read)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr and "DEPRECATION" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def too_old() -> Path:
    if sys.version_info >= (3, 14):
        pytest.skip("NOT RUN: no ansible-core that is too old runs on this machine's Python")
    env = CACHE / "envs/controller-too-old"
    subprocess.run([REPOSITORY / "requirements/make_env.sh", env, "controller-too-old"], check=True)
    return env / "bin/ansible-playbook"


@pytest.mark.parametrize("playbook", ["launch.yml", "playbooks/bootstrap.yml"])
def test_one_that_is_too_old_says_so_and_nothing_else(too_old: Path, playbook: str, tmp_path: Path) -> None:
    nobody = tmp_path / "hosts.yml"
    nobody.write_text("others: {hosts: {localhost: {}}}")
    done = subprocess.run(
        [too_old, "-i", nobody, playbook],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode and len(said) <= 3, done.stdout + done.stderr
    assert "ansible-core 2.18" in said[0] and "2.19" in said[0] and "Traceback" not in done.stderr
    assert "fix: make env; then .venv/bin/ansible-playbook" in said[1]
