"""Becoming root on Debian 13: by sudo and by sudo-rs, with a password and without, refused, and where there is none."""

import json

import pexpect
import pytest

from lab.host import Host
from lab.profile import PASSWORD, USER
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster
from tests.support.screen import Screen

pytestmark = pytest.mark.long  # tests/unit/plugins/become/test_any_sudo.py; passwords: roles/test_when_it_breaks.py

CLASSIC, RUST, FREE = "gpu-master", "gpu-worker-1", "gpu-worker-2"
ROOTS_PASSWORD = "of root alone"
INSTALL = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y install sudo-rs"


@pytest.fixture(scope="module")
def person(trixie_trio: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """One machine with sudo, two with sudo-rs in its place; one of these asks for no password."""
    for name in (RUST, FREE):
        has_sudo_rs(trixie_trio[name])
    trixie_trio[FREE].run("sh", "-c", f"echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/free")
    return Person.with_inventory(trixie_trio, tmp_path_factory.mktemp("person"))


def has_sudo_rs(host: Host) -> None:
    """As Ubuntu links it."""
    host.run("sh", "-ec", f"{INSTALL}; mv /usr/bin/sudo /usr/bin/sudo.ws; ln -s ../lib/cargo/bin/sudo /usr/bin/sudo")


def test_each_sudo_lets_in_whoever_has_the_right_password(person: Person) -> None:
    said = person.bootstraps(phase="ssh_trust")
    assert set(said.changed()) == {CLASSIC, RUST, FREE} and all(said.changed().values()), said.out


def test_sudo_may_want_another_password_than_ssh(person: Person) -> None:
    """The keys open the machines by now; what is typed for the login is wrong, what is typed for sudo is right."""
    said = person.bootstraps(phase="power", password="something else", sudo=PASSWORD)
    assert all(said.changed().values()), said.out


def test_each_sudo_is_understood_when_the_password_is_wrong(person: Person) -> None:
    said = person.types("bootstrap", phase="power", sudo="something else")
    assert said.rc == 1 and "the password works for logging in, but not for sudo" in said.out, said.out
    assert f"✗ {CLASSIC}, {RUST}  preflight" in told(said.out), said.out


def test_ad_hoc_commands_become_root_as_well(person: Person) -> None:
    secret = person.folder / "secret.json"
    at = person.cluster[RUST].spec.installed_address
    secret.write_text(json.dumps({"ansible_become_password": PASSWORD, "ansible_host": at}))
    command = ["ansible", "-i", person.inventory, RUST, "-b", "-m", "ansible.builtin.command", "-a", "id -un"]
    said = person.cluster.controller(*command, "-e", f"@{secret}")
    assert said.returncode == 0 and "root" in said.stdout.split(), said.stdout + said.stderr


def test_no_sudo_and_refused_sudo_are_named_together_with_the_one_command_that_helps(person: Person) -> None:
    """What Debian's installer leaves where root was given a password: no sudo, and nobody in its group."""
    bare, refused = person.cluster[CLASSIC], person.cluster[RUST]
    for host in (bare, refused):
        host.run("gpasswd", "--delete", USER, "sudo")
        host.run("chpasswd", stdin=f"root:{ROOTS_PASSWORD}\n")
    bare.run("sh", "-ec", "apt-get -qq update; SUDO_FORCE_REMOVE=yes apt-get -qq -y purge sudo")
    said = person.types("bootstrap", phase="clock")
    assert said.rc == 1 and "there is no sudo on it" in said.out, said.out
    assert "the login user may not use sudo there" in said.out and FREE not in told(said.out), said.out
    assert "it has no Python 3" not in said.out

    command = 'su - -c "apt install sudo && adduser $USER sudo"'
    assert command in said.out, said.out
    for host in (bare, refused):
        types_as_the_user(person.cluster, host, command)
    person.bootstraps(phase="clock")


def told(out: str) -> str:
    return "\n".join(line for line in out.splitlines() if line.startswith("✗"))


def types_as_the_user(cluster: Cluster, host: Host, command: str) -> None:
    """At the machine, logged in as the user; root's password is asked for."""
    at = ["netns", "exec", cluster.desk, "ssh", "-t", "-o", "ControlPath=none", "-o", "StrictHostKeyChecking=no"]
    at += [
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "PubkeyAuthentication=no",
        f"{USER}@{host.spec.installed_address}",
    ]
    with Screen("ip", [*at, command], encoding="utf-8") as screen:
        screen.expect(f"{USER}@.*assword:")
        screen.sendline(PASSWORD)
        screen.expect("(?<!@)Password:")
        screen.sendline(ROOTS_PASSWORD)
        while screen.expect([r"\[Y/n\]", pexpect.EOF]) == 0:
            screen.sendline("y")
        screen.close()
        assert screen.exitstatus == 0, screen.before
