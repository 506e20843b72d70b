"""Five machines that somebody already lives with, from what their owner left to a finished run and back. What was the
owner's works before, while Motley is there, and after its undo."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from lab import base
from lab.host import Host
from lab.profile import USER
from tests.support import cluster as clusters
from tests.support import pace, photos, router
from tests.support.bootstrap import Person
from tests.support.typed import says, variables

HEAD, BACKED_UP, PIHOLED, CHATTY, BARE = "gpu-master", "gpu-worker-1", "gpu-worker-2", "gpu-worker-3", "gpu-worker-4"
"""The head keeps backups; one sends them there, and has a second address; one has a resolver of its own in the network;
the shell of one greets; one has no card."""
SECOND = "10.20.0.5/24"
PIHOLE = "10.77.0.66"
QUICK = ["-e", "model=tiny", "-e", "rows_per_step=24", "-e", "max_seq_length=64"]
CHATTER = "welcome to the machine, Anna\n"
AS_FOUND = (
    "cd /etc; find netplan hosts hostname ssh/ssh_config.d ssh/sshd_config.d nftables.conf systemd/system"
    " apt/apt.conf.d sudoers.d /home/user/.bashrc /home/user/.ssh /root/.ssh -type f ! -name known_hosts* 2>/dev/null"
    " | sort | xargs sha256sum"
)


@pytest.fixture(scope="module")
def person(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    folder = tmp_path_factory.mktemp("five")
    with clusters.hosts(f"f{folder.stat().st_ino % 10**9}", "five", base.default_suite(), ["train"]) as lab:
        person = Person(clusters.Cluster(lab, folder), folder)
        pihole = ["ip", "netns", "exec", lab.place.stranger, "python3", "-c", router.NAME_SERVER]
        with subprocess.Popen(pihole) as names:
            lived_in(person)
            yield person
            names.kill()


def lived_in(person: Person) -> None:
    cluster = person.cluster
    for who in ("root", USER):
        make = 'ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id_ed25519 && cat ~/.ssh/id_ed25519.pub'
        key = as_who(cluster[BACKED_UP], who, f"mkdir -p -m 700 ~/.ssh; {make}")
        as_who(cluster[HEAD], USER, "mkdir -p -m 700 ~/.ssh; cat >> ~/.ssh/authorized_keys", stdin=key)
    netplan(cluster[BACKED_UP], f"addresses=[{SECOND}]")  # it adds to lists
    netplan(cluster[PIHOLED], "nameservers=null", f"nameservers.addresses=[{PIHOLE}]")
    as_who(cluster[CHATTY], USER, "cat - ~/.bashrc > ~/b 2>/dev/null; mv ~/b ~/.bashrc", stdin=f"echo {CHATTER}")


def as_who(host: Host, who: str, command: str, stdin: str = "") -> str:
    return host.run("runuser", "-u", who, "--", "sh", "-c", f"cd; {command}", stdin=stdin)


def netplan(host: Host, *settings: str) -> None:
    for setting in settings:
        host.run("netplan", "set", f"network.ethernets.{host.spec.nics[0]}.{setting}")
    host.run("netplan", "apply")
    host.wait_until_up()


def owners_things_work(person: Person) -> None:
    cluster = person.cluster
    head, backed_up = cluster[HEAD], cluster[BACKED_UP]
    address = head.run("ip", "-br", "-4", "address", "show", head.spec.nics[0]).split()[2].split("/")[0]
    ways = [f"{USER}@{address}"]
    ways += [f"{USER}@{HEAD}"] if head.run("hostname").strip() == HEAD else []  # as bootstrap names it to all
    for who in ("root", USER):
        for way in ways:
            came = as_who(backed_up, who, f"ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new {way} id -un")
            assert came.strip() == USER, (who, way)
    assert SECOND in backed_up.run("ip", "-br", "-4", "address", "show", backed_up.spec.nics[0])
    asks = cluster[PIHOLED].run("networkctl", "status", cluster[PIHOLED].spec.nics[0], "--no-pager")
    assert f"DNS: {PIHOLE}" in asks, asks
    shell = ["runuser", "-u", USER, "--", "bash", "-ic", "true"]
    assert cluster[CHATTY].run(*shell).startswith(CHATTER)


def as_found(person: Person) -> dict[str, str]:
    return {host.name: host.run("sh", "-c", AS_FOUND) for host in person.cluster.hosts}


def of_other_recipes(person: Person) -> dict[str, list[str]]:
    texts = person.folder / "texts"
    texts.mkdir()
    for number in range(40):
        (texts / f"{number}.txt").write_text(f"A letter, number {number}, about the weather of that day. " * 30)
    seen = [f"dataset={photos.write(person.folder / 'photos')}", "model=resnet18", "width=8", "image_size=16"]
    new = [f"dataset={texts}", "hidden_size=64", "layers=2", "vocab_size=300", "max_seq_length=64"]
    return {"pretrain": [*new, "rows_per_step=40"], "images": [*seen, "rows_per_step=40"]}


@pytest.mark.long
def test_from_what_their_owner_left_to_an_adapter_and_back(person: Person) -> None:
    owners_things_work(person)
    before = as_found(person)
    person.writes(motley_dns=None, motley_render_environment={"OMP_NUM_THREADS": 1})
    person.bootstraps()
    owners_things_work(person)
    says(person, "check-versions")
    says(person, "doctor", "--quick")

    said = says(person, "launch", *QUICK, "-e", "run=all", "-e", "max_steps=20")
    assert "started on 5 of 5 nodes" in said and "done · 20 steps" in said
    some = f"{HEAD},{BACKED_UP},{CHATTY}"
    said = says(person, "launch", "--nodes", some, *QUICK, "-e", "run=some", "-e", "max_steps=20", "-e", "seed=7")
    assert "started on 3 of 3 nodes" in said
    for recipe, settings in of_other_recipes(person).items():
        words = variables(*settings, f"run={recipe}", "max_steps=6")
        said = says(person, "launch", "-e", f"recipe={recipe}", *words)
        assert "started on 5 of 5 nodes" in said and "done · 6 steps" in said
    says(person, "check-versions")
    says(person, "doctor", "--quick")
    said = says(person, "launch", *QUICK, "-e", "run=long", "-e", "max_steps=100000", "-e", "follow=false")
    pace.until(lambda: person.types("status").out.count("  training  ") == 5, 120, lambda: person.types("status").out)
    says(person, "stop")
    assert all(name in says(person, "runs") for name in ("all", "some", "long"))
    results = person.folder / "results"
    said = says(person, "fetch", "--run", "all", "--results", str(results))
    assert (results / "all/adapter").is_dir() and CHATTER.strip() not in said
    owners_things_work(person)

    says(person, "undo", "--phase", "all")
    owners_things_work(person)
    assert as_found(person) == before
