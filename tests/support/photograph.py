"""What a careful person would photograph on each machine before anything is done to it, to compare with afterwards."""

from __future__ import annotations

import difflib

from tests.support.bootstrap import Person

# Everything that bootstrap might touch, with content, mode and owner; host keys and sudo's own mark are not its doing.
LOOK = r"""
cd / && look() {
  find etc home root/.ssh var/spool/cron -xdev ! -name .sudo_as_admin_successful ! -name 'ssh_host_*' \
    ! -name ld.so.cache "$@" 2>/dev/null
}
{ look \( -type f -o -type l \) -printf '%p %m %u:%g %l\n'; look -type f -exec sha256sum {} +; } | sort
dpkg-query -W -f '${binary:Package} ${Version} ${db:Status-Abbrev}\n'; apt-mark showhold; apt-mark showauto
hostname; ip -br -4 address; systemctl list-unit-files --no-legend --state=enabled
# NetworkManager counts a metric up from 100 where the old connection has not gone when the new one comes.
ip -4 route | sed 's/ metric 10[0-9]\b/ metric 100/'
nft list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
"""

Photographs = dict[str, list[str]]


def photographed(person: Person) -> Photographs:
    return {host.name: host.run("sh", "-c", LOOK).splitlines() for host in person.cluster.hosts}


def differences(before: list[str], after: list[str]) -> list[str]:
    return [
        line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
    ]
