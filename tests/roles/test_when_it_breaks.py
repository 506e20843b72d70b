"""Each way in which a home cluster breaks gives its sentence, and loses nothing."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from lab import faults
from lab.host import Host
from tests.support import pace
from tests.support.bootstrap import Person, hint
from tests.support.cluster import Cluster
from tests.support.screen import Screen

HEAD, VICTIM, OTHER = "gpu-master", "gpu-worker-1", "gpu-worker-2"


@pytest.fixture
def person(fresh_trio: Cluster, tmp_path: Path) -> Person:
    return Person.with_inventory(fresh_trio, tmp_path)


def nothing_changed(person: Person) -> bool:
    return all(host.outcome("test", "-e", "/var/lib/motley").returncode != 0 for host in person.cluster.hosts)


@pytest.mark.spoils()
def test_a_bad_inventory_connects_to_nothing(person: Person) -> None:
    person.writes(
        {VICTIM: {"motley_adress": "10.77.0.9"}, OTHER: {"motley_gpu": "GTX 1080"}}, motley_gateway="10.9.0.1"
    )
    said = person.types("bootstrap")
    assert said.rc == 2
    assert "did you mean 'motley_address'?" in said.out
    assert "GTX 1080 is Pascal" in said.out
    assert "the gateway 10.9.0.1 is outside 10.77.0.0/24" in said.out
    assert not person.state.exists()


def test_wrong_passwords_and_refused_sudo_are_named_together(person: Person) -> None:
    faults.inject(person.cluster.lab, person.cluster[VICTIM], "wrong-password")
    faults.inject(person.cluster.lab, person.cluster[OTHER], "no-sudo")
    said = person.types("bootstrap")
    assert said.rc == 1
    assert "the password was not accepted for logging in" in said.out
    assert "the login user may not use sudo there" in said.out
    assert nothing_changed(person), said.out


@pytest.mark.long  # tests/unit/plugins/become/test_any_sudo.py
@pytest.mark.spoils(VICTIM, OTHER)
def test_sudo_answers_in_a_language_that_is_understood_and_apt_that_is_busy_is_waited_for(person: Person) -> None:
    """What a machine of a German says to a wrong password is no refusal to anybody who listens for English."""
    own = '#!/bin/sh\n[ "$LC_ALL" = C.UTF-8 ] && exec /usr/bin/sudo "$@"\necho Das hat nicht funktioniert >&2; exit 1\n'
    person.cluster[VICTIM].run("sh", "-c", "cat > /usr/local/bin/sudo && chmod 755 /usr/local/bin/sudo", stdin=own)
    held_s = min(float(pace.seconds(15)), 150.0)
    faults.inject(person.cluster.lab, person.cluster[OTHER], "apt-lock", {"seconds": held_s})
    said = person.bootstraps(phase="clock", limit=f"{VICTIM},{OTHER}")
    assert "s for apt" in said.out


@pytest.mark.long
@pytest.mark.spoils(VICTIM)
def test_programs_on_a_german_machine_are_asked_in_english(person: Person) -> None:
    """The words of each are read: with LANGUAGE=de in its settings even LC_ALL=C.UTF-8 has them translated."""
    host = person.cluster[VICTIM]
    english = "C:*|C.UTF-8::*|C.UTF-8:C:*|*--quiet*"  # of what says nothing, the language does not matter
    asked = f'#!/bin/sh\ncase "$LC_ALL:$LANGUAGE:$*" in {english}) ;; *) echo "$0 $*" >> /tmp/german;; esac\n'
    asked += 'exec "$(PATH=/usr/sbin:/usr/bin command -v "${0##*/}")" "$@"\n'
    programs = "apt-get apt-cache df dpkg-query hostnamectl ip netplan nft sudo sshd systemctl timedatectl ufw"
    wrap = f"cd /usr/local/bin && cat > ip && chmod 755 ip && for p in {programs}; do [ $p = ip ] || ln ip $p; done"
    host.run("sh", "-c", wrap, stdin=asked)
    host.run("tee", "/etc/default/locale", stdin="LANG=de_DE.UTF-8\nLANGUAGE=de_DE:de\n")
    host.run("install", "-m", "666", "/dev/null", "/tmp/german")
    person.bootstraps(phase="power", limit=VICTIM)
    person.types("doctor", "--quick", limit=VICTIM)
    person.types("check-versions", limit=VICTIM)
    person.bootstraps(phase="ssh_trust", limit=VICTIM)  # a launch comes by key
    person.plans(model="tiny", nodes=VICTIM)
    person.types("undo", limit=VICTIM, phase="power")
    assert host.run("sort", "-u", "/tmp/german") == ""


@pytest.mark.long  # tests/unit/plugins
@pytest.mark.spoils(VICTIM)
def test_an_sshd_that_takes_keys_from_elsewhere_is_told_and_no_password_is_blamed(person: Person) -> None:
    host, settings = person.cluster[VICTIM], "/etc/ssh/sshd_config.d/10-keys.conf"
    takes = f"cat > {settings}; systemctl reload ssh"
    host.run("sh", "-c", takes, stdin="AuthorizedKeysFile /etc/ssh/keys/%u\n")
    said = person.types("bootstrap", phase="ssh_trust", limit=VICTIM)
    assert said.rc == 1 and "the password was not accepted" not in said.out
    assert "its sshd takes keys from /etc/ssh/keys/user, not from /home/user/.ssh/authorized_keys" in said.out
    assert "fix: on it, in /etc/ssh/sshd_config: add .ssh/authorized_keys to AuthorizedKeysFile" in said.out
    host.run("sh", "-c", takes, stdin="AuthorizedKeysFile /etc/ssh/keys/%u .ssh/authorized_keys\n")
    person.bootstraps(phase="ssh_trust", limit=VICTIM)


@pytest.mark.long  # tests/unit/plugins
def test_nodes_of_different_releases_or_processors_are_told_before_anything_changes(person: Person) -> None:
    """One environment serves all nodes: whoever learns that after the driver has lost half an evening."""
    person.writes(motley_python_env_manage=True)
    host = person.cluster[VICTIM]
    site = host.run("python3", "-c", "import sitecustomize as s; print(s.__file__)").strip()
    host.run("cp", "-L", site, "/root/site")
    claims = {
        "import sys; sys.version_info = (3, 14, 0)\n": ("the nodes have different Pythons", f"{VICTIM} 3.14"),
        "import platform; platform.machine = lambda: 'aarch64'\n": ("different processors", f"{VICTIM} aarch64"),
    }
    for claim, words in claims.items():
        host.run("sh", "-c", f"cat /root/site - > {site}", stdin=claim)
        said = person.types("bootstrap")
        assert said.rc == 1 and all(word in said.out for word in words), said.out
    host.run("sh", "-c", f"cat /root/site > {site}; rm /root/site")
    assert nothing_changed(person), said.out


def test_a_node_that_is_off_is_left_out_and_one_reinstalled_is_pinned_again_on_request(person: Person) -> None:
    victim, other, keys = person.cluster[VICTIM], person.cluster[OTHER], "/home/user/.ssh/authorized_keys"
    faults.inject(person.cluster.lab, other, "power-cut")
    said = person.types("bootstrap", phase="ssh_trust")
    assert said.rc == 1
    assert f"{OTHER} was skipped: nobody answers at" in said.out
    for name in (HEAD, VICTIM):
        assert "motley-controller@" in person.cluster[name].run("cat", keys), "the others go on"
    faults.fix(person.cluster.lab, other, "power-cut")
    faults.inject(person.cluster.lab, victim, "reinstalled")
    said = person.types("bootstrap", phase="ssh_trust", limit=VICTIM)
    assert said.rc == 1
    assert "shows another host key than the one pinned on" in said.out
    assert re.search(hint(f"bootstrap --repin {VICTIM}"), said.out), said.out
    assert victim.outcome("test", "-e", keys).returncode != 0, "it is not talked to"
    person.bootstraps("--repin", VICTIM, phase="ssh_trust")
    for host in (victim, other):
        asked = ["runuser", "-u", "user", "--", "ssh", "-o", "BatchMode=yes"]
        at = f"HostName={host.spec.installed_address}"
        assert person.cluster[HEAD].outcome(*asked, "-o", at, host.name, "true").returncode == 0


@pytest.mark.long  # tests/unit/plugins
@pytest.mark.spoils(VICTIM, OTHER)
def test_one_machine_listed_twice_is_told_from_a_copied_disk(person: Person) -> None:
    one, other = person.cluster[VICTIM], person.cluster[OTHER]
    one.run("ip", "address", "add", "10.77.0.77/24", "dev", one.spec.nics[0])
    person.writes({OTHER: {"motley_current_address": "10.77.0.77"}})
    said = person.types("bootstrap", phase="hostname", limit=f"{VICTIM},{OTHER}")
    assert said.rc == 1 and f"it is {VICTIM} under another address, 10.77.0.77" in said.out, said.out
    assert f"fix: take {OTHER} out of hosts.yml" in said.out and "sudo rm" not in said.out
    assert one.run("hostname").strip() == VICTIM, "the other line is good"

    keys = "/etc/ssh/ssh_host_ed25519_key"
    other.run(
        "sh", "-c", f"cat > {keys}; rm -f /etc/ssh/ssh_host_*.pub; systemctl reload ssh", stdin=one.run("cat", keys)
    )
    person.writes()
    said = person.types("bootstrap", phase="hostname", limit=f"{VICTIM},{OTHER}")
    assert said.rc == 1 and f"it has the same host key as {VICTIM}: one disk was copied to both" in said.out, said.out
    assert "fix: on it: sudo rm /etc/ssh/ssh_host_*" in said.out
    assert other.run("hostname").strip() != OTHER


@pytest.mark.long
def test_six_keys_in_the_agent_are_in_nobodys_way(person: Person) -> None:
    """As many as sshd lets anybody try. One machine takes keys only: there one of the six is its owner's."""
    takes_keys_only(person.cluster[VICTIM], takes=f"{person.folder}/agent/0.pub")
    with agent_with_six_keys(person.folder / "agent") as agent:
        person.bootstraps(phase="ssh_trust", SSH_AUTH_SOCK=agent)
        assert set(person.bootstraps(phase="ssh_trust", SSH_AUTH_SOCK=agent).changed().values()) == {0}
        assert person.types("status", SSH_AUTH_SOCK=agent).rc == 0
    head = person.cluster[HEAD]
    at = person.cluster[OTHER].spec.installed_address
    six = 'for i in 1 2 3 4 5 6; do ssh-keygen -q -N "" -f ~/.ssh/$i; ssh-add -q ~/.ssh/$i; done'
    # What Motley itself asks of ssh there; of what you type, the agent's keys are as much a part as before.
    script = f"{six}; ssh -o BatchMode=yes -o IdentitiesOnly=yes -o HostName={at} {OTHER} hostname"
    pace.went_well(head.outcome("runuser", "-u", "user", "--", "ssh-agent", "sh", "-c", script))


def takes_keys_only(host: Host, takes: str) -> None:
    key = Path(takes)
    key.parent.mkdir()
    for number in range(6):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key.with_name(str(number))], check=True)
    allow = "mkdir -m 700 ~/.ssh; cat > ~/.ssh/authorized_keys"
    host.run("runuser", "-u", "user", "--", "sh", "-c", allow, stdin=key.read_text())
    host.run("sh", "-c", "echo PasswordAuthentication no > /etc/ssh/sshd_config.d/keys.conf; systemctl restart ssh")
    host.wait_until_up()


@contextmanager
def agent_with_six_keys(folder: Path) -> Iterator[str]:
    """The way to an ssh-agent that offers 0 to 5, in this order."""
    socket = f"{folder}/socket"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        pace.until(Path(socket).exists, 60, "the agent does not begin", every_s=0.02)
        keys = [folder / str(number) for number in range(6)]
        subprocess.run(["ssh-add", "-q", *keys], check=True, env={"SSH_AUTH_SOCK": socket})
        yield socket
    finally:
        agent.terminate()
        agent.wait()


@pytest.mark.long  # tests/unit/plugins/modules/test_apt_packages.py
@pytest.mark.spoils(VICTIM, OTHER)
def test_a_full_disk_and_apt_that_stays_busy_are_named_together_and_lose_nothing(person: Person) -> None:
    hosts = person.cluster[VICTIM].run("cat", "/etc/hosts")
    faults.inject(person.cluster.lab, person.cluster[VICTIM], "disk-full")
    faults.inject(person.cluster.lab, person.cluster[OTHER], "apt-lock")
    person.writes(motley_preflight_apt_wait_s=1)
    said = person.types("bootstrap", limit=f"{VICTIM},{OTHER}")
    assert said.rc == 1
    assert "GB free" in said.out or "its disk is full" in said.out, said.out
    assert "fix: make room" in said.out
    assert "apt is busy" in said.out and "fix: let it finish" in said.out, said.out
    assert person.cluster[VICTIM].run("cat", "/etc/hosts") == hosts
    faults.fix(person.cluster.lab, person.cluster[VICTIM], "disk-full")
    person.bootstraps(limit=VICTIM, phase="hostname")


@pytest.mark.spoils(HEAD, VICTIM)
def test_a_second_controller_takes_nothing_from_the_first_and_undo_never_the_last_way_in(
    person: Person, tmp_path: Path
) -> None:
    """A password that opens nothing alone, a key in a comment and one that only runs a backup let nobody in."""
    host, keys = person.cluster[VICTIM], "/home/user/.ssh/authorized_keys"
    of_a_person = person.cluster[OTHER].run("sh", "-c", "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
    odd = f'# {of_a_person} old laptop\ncommand="/bin/backup",restrict {of_a_person} nas\n'
    host.run("su", "user", "-c", f"mkdir -m 700 ~/.ssh && cat > {keys} && chmod 600 {keys}", stdin=odd)
    folders = ("ls", "-A", "/etc/ssh", "/etc/ssh/ssh_config.d", "/home/user/.ssh")
    before = host.run(*folders)
    person.bootstraps(phase="ssh_trust", limit=f"{HEAD},{VICTIM}")
    trusted = host.run("cat", keys, "/etc/ssh/motley_known_hosts")
    assert f"motley@{HEAD}" in trusted
    other = Person.with_inventory(person.cluster, tmp_path / "other")
    said = other.bootstraps(phase="ssh_trust", limit=VICTIM)
    assert "another controller" in said.out, said.out
    both = host.run("cat", keys, "/etc/ssh/motley_known_hosts")
    assert both.count("motley-controller@") == 2 and f"motley@{HEAD}" in both
    assert both.endswith(trusted.partition(f"motley@{HEAD}")[2]), "it has met one node only"
    said = other.types("undo", phase="ssh_trust", limit=VICTIM)
    assert said.rc == 0 and "still" in said.out, said.out
    assert host.run("cat", keys, "/etc/ssh/motley_known_hosts") == trusted
    only_keys = "Match User user LocalPort 22\n AuthenticationMethods publickey\n"  # as long as one comes by this port
    settings = "/etc/ssh/sshd_config.d/10-keys.conf"
    host.run("sh", "-c", f"cat > {settings}; systemctl reload ssh", stdin=only_keys)
    said = person.types("undo", phase="ssh_trust", limit=VICTIM)
    assert said.rc == 1 and "Motley's key is the only way in" in said.out, said.out
    assert "motley-controller@" in host.run("cat", keys)
    host.run("sh", "-c", f"cat >> {keys}", stdin=f"{of_a_person} anna\n")
    assert person.types("undo", phase="ssh_trust", limit=VICTIM).rc == 0
    assert host.run("cat", keys) == f"{odd}{of_a_person} anna\n"
    assert host.run(*folders) == before


@pytest.mark.long  # test_network_drill.py stops a controller
@pytest.mark.spoils(VICTIM)
def test_stopped_in_a_phase_it_says_where_and_the_same_command_goes_on(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C and by SIGTERM; each of these runs is the one before it, typed again."""
    person.writes(motley_static_ip_rollback_s=pace.seconds(20), motley_static_ip_reconnect_s=pace.seconds(15))
    monkeypatch.setenv("VERBOSE", "1")  # it tells each task as it begins
    asking = person.sits_at("bootstrap", limit=VICTIM)
    asking.expect_exact("TASK [motley_contact : ")
    says_where(person, asking, "intr", "stopped before anything was changed")
    assert nothing_changed(person)
    for phase, how in (("static_ip", "term"), ("firewall", "intr")):
        stopped = person.sits_at("bootstrap", limit=VICTIM)
        stopped.expect(rf"TASK \[motley_{phase} : (?!Validating|Plan)")
        says_where(person, stopped, how, r"stopped in \w+: ")
    assert person.bootstraps(limit=VICTIM).receipt["outcome"] == "proven"


def says_where(person: Person, going: Screen, how: str, where: str) -> None:
    going.sendintr() if how == "intr" else going.kill(signal.SIGTERM)
    going.expect(where, timeout=20)
    going.expect("again: " + hint(f"bootstrap --nodes {VICTIM}"))
    going.expect(pexpect.EOF, timeout=10)
    going.close()
    assert going.exitstatus == 130 and person.at_work() == [], where
