"""Turns what Ansible says of a failure into the cause and the mend, in words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    what: str
    fix: str  # {host} stands for the node, or for all that fail alike

    def fix_on(self, hosts: str) -> str:
        return self.fix.replace("{host}", hosts)


# `su -`, as a plain su would not find adduser; where sudo is there already, apt has nothing to do.
MAY_USE_SUDO = (
    'on {host}, as its user: su - -c "apt install sudo && adduser $USER sudo" (root\'s password); '
    "log in again there; then the same here again"
)

# What the message contains -> cause, mend. First match wins.
KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"Failed to create temporary directory(?!(?s:.)*No space left)",
        "nothing can be written to the login user's home there",
        "on {host}: df -h ~ (is the disk full, or read-only?) and ls -ld ~ (whose is it?)",
    ),
    (
        r"IDENTIFICATION HAS CHANGED|Host key verification failed",
        "it shows another host key than the pinned one",
        "if it was reinstalled: make bootstrap REPIN={host}",
    ),
    (
        r"Too many authentication failures",
        "ssh offered it too many keys before the right one",
        "in ~/.ssh/config here, put each IdentityFile below the Host that it is for; then again",
    ),
    (
        r"Permission denied \(publickey\)",
        "it takes keys only, and none that it knows was offered",
        "see that ssh USER@{host} lets you in from here: your key in ~/.ssh/authorized_keys there; then again",
    ),
    (
        r"Permission denied|Invalid/incorrect password",
        "the password was not accepted for logging in",
        "run again with the right one; ansible_user in hosts.yml is who logs in (one machine may have its own)",
    ),
    (
        r"Incorrect sudo password|Duplicate become password prompt|Sorry, try again",
        "the password works for logging in, but not for sudo",
        "if sudo wants another one: SUDO_PASSWORD=ask make bootstrap",
    ),
    (r"Missing sudo password", "sudo wants a password and none was given", "run again and type it"),
    (r"\benv: .?sudo.?: |sudo: (command )?not found", "there is no sudo on it", MAY_USE_SUDO),
    (
        r"not in the sudoers file|may not run sudo|not allowed to (run|execute)|afraid I can't do that",
        "the login user may not use sudo there",
        MAY_USE_SUDO,
    ),
    (
        r"privilege escalation prompt|become password prompt",
        "sudo did not answer in time",
        "see what it asks: ssh to {host} and type sudo true",
    ),
    (r"No space left on device|disk is full", "its disk is full", "make room on {host}: sudo du -xhd1 / | sort -h"),
    (
        r"Could not get lock|dpkg frontend lock|is another process using it",
        "apt is busy there",
        "let it finish and run again; see it with: systemctl status apt-daily-upgrade unattended-upgrades",
    ),
    (
        r"python\S*: (command )?not found|interpreter .* not found|No such file or directory: b?'?/usr/bin/python3",
        "it has no Python 3",
        "on {host}: sudo apt install python3",
    ),
    (
        r"Connection refused",
        "it is on, but no SSH server answers",
        "on {host}: sudo apt install openssh-server",
    ),
    (
        r"timed out|Data could not be sent|No route to host|Network is unreachable"
        r"|Connection reset|Connection closed|Broken pipe",
        "the connection to it was lost; if its network was being changed, it takes that back by itself",
        "check its power, cable or Wi-Fi; then run again",
    ),
)
UNKNOWN = "VERBOSE=1 shows all that Ansible says; make bootstrap PHASE=… LIMIT={host} repeats one phase on it"


def explain(result: dict[str, Any], *, unreachable: bool = False) -> Cause:
    """A task that already says its fix is believed; else the message is looked up; else it is quoted."""
    message = full_message(result)
    what, said, fix = message.rpartition("\nfix: ")  # of several findings, the others keep theirs in their lines
    if said:
        return Cause(what=what.strip(), fix=fix.strip().splitlines()[0])
    for pattern, known, mend in KNOWN:
        if re.search(pattern, message, re.IGNORECASE):
            return Cause(what=known, fix=mend)
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["it failed without a word"]
    kind = "it cannot be reached: " if unreachable else ""
    return Cause(what=kind + "\n".join(lines[:3]), fix=UNKNOWN)


def full_message(result: dict[str, Any]) -> str:
    """Message and error output, without Ansible's own prefixes."""
    parts = [str(result.get(key) or "") for key in ("msg", "stderr", "module_stderr")]
    text = "\n".join(part for part in parts if part)
    text = re.sub(r"^(Task failed: |Action failed: |Module failed: )+", "", text)
    return re.sub(r"\A(non-zero return code|MODULE FAILURE)\n", "", text)
