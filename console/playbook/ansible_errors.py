"""Turns what Ansible reports of a failure into the cause and the fix. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from console.playbook.ansible_events import TaskResult

KNOCKS = {
    "closed": (
        "its SSH server closes each connection from here at {at}: it blocks this computer for a moment",
        "wait two minutes, then try again (sshd does this after failed logins; on it: journalctl -u ssh)",
    ),
    "silent": (
        "it hangs: its kernel takes connections at {at}, its programs do not answer",
        "look at its screen; otherwise press its power button",
    ),
    "refused": (
        "it is on, but no SSH server answers at {at}",
        "on it: sudo apt install openssh-server",
    ),
    "behind": (
        "ssh reaches {at} over another machine (ProxyJump, ProxyCommand); its host key must be seen directly",
        "type this on a computer in its network, such as the machine in between (README.md, Your own machines)",
    ),
}
"""What a machine that answers no ssh does at its port, and what to do."""


@dataclass(frozen=True, slots=True)
class Cause:
    what: str
    fix: str  # {host} stands for the node, or for all that fail alike
    output: str = ""  # what was printed, where `what` is our own sentence for it

    def fix_on(self, hosts: str) -> str:
        return self.fix.replace("{host}", hosts)


# `su -`, as a plain su would not find adduser; where sudo is there already, apt has nothing to do.
MAY_USE_SUDO = (
    'on {host}, as its user: su - -c "apt install sudo && adduser $USER sudo" (root\'s password); '
    "log in again there; then the same here again"
)

# What the message contains -> cause, fix. First match wins.
ANYWHERE: tuple[tuple[str, str, str], ...] = (
    (
        r"Failed to create temporary directory(?!(?s:.)*No space left)",
        "nothing can be written to the login user's home there",
        "on {host}: df -h ~ (is the disk full, or read-only?) and ls -ld ~ (whose is it?)",
    ),
    (
        r"IDENTIFICATION HAS CHANGED|Host key verification failed",
        "it shows another host key than the pinned one",
        "if it was reinstalled: ./motley bootstrap --repin {host}",
    ),
    (
        r"Too many authentication failures",
        "ssh offered it too many keys before the right one",
        "in ~/.ssh/config here, put each IdentityFile below the Host that it is for; then again",
    ),
    (
        r"must have a tty to run sudo",
        "its sudo works in a terminal only (requiretty)",
        "on {host}, with sudo visudo: take 'Defaults requiretty' out, or add 'Defaults:USER !requiretty'; then again",
    ),
    (
        r"password (has|is|has been) expired|Password change required|required to change your password",
        "the login user's password has expired",
        "log in on {host} by hand (ssh asks for a new one there); then again with the new one",
    ),
    (
        r"Timed out after 30 second",  # the one task with a limit: roles/motley_contact
        "a key of yours wanted a touch to log in there, and had none within 30 s",
        "run again, and touch it when it blinks",
    ),
    (
        r"Incorrect sudo password|Duplicate become password prompt|Sorry, try again",
        "the password works for logging in, but not for sudo",
        "if sudo wants another one: ./motley bootstrap --sudo-password ask",
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
        "look whether it is still on; then see what it asks: ssh to {host} and type sudo true",
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
)
# What these words mean where logging in or a connection failed; a program may print them about something else.
OF_THE_CONNECTION: tuple[tuple[str, str, str], ...] = (
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
KNOWN = (*ANYWHERE, *OF_THE_CONNECTION)
CONNECTING = re.compile(
    r"\bssh: |(over|via) ssh|\(publickey|Failed to connect|waiting for (ping|last boot)|incorrect password",
    re.IGNORECASE,
)
UNKNOWN = "--verbose shows all that Ansible says; ./motley bootstrap --phase … --nodes {host} repeats one phase on it"
UNKNOWN_IN_A_LAUNCH = "--verbose shows all that Ansible says; ./motley doctor whether something is wrong with a machine"

# Ansible's own sentences that say nothing of the task.
EMPTY = re.compile(r"\A(non-zero return code|MODULE FAILURE.*|One or more items failed)$", re.MULTILINE)
PREFIX = re.compile(r"\A(Task failed: |Action failed: |Module failed: )+")
OVER_SSH = re.compile(r"(Data could not be sent to remote host|Failed to connect to the host).*? ssh: (?=\S)")
LINES, WIDTH = 5, 300


def explain(result: TaskResult, *, unreachable: bool = False, otherwise: str = UNKNOWN) -> Cause:
    """A task that already says its fix is believed; else the message is looked up; else it is quoted."""
    message = full_message(result)
    what, marked, fix = message.rpartition("\nfix: ")  # of several findings, the others keep theirs in their lines
    if marked:
        return Cause(what=what.strip(), fix=fix.strip().splitlines()[0])
    for pattern, known, fix in KNOWN if unreachable or CONNECTING.search(message) else ANYWHERE:
        if found := re.search(pattern, message, re.IGNORECASE):
            return Cause(what=known, fix=fix, output=_line_around(message, found))
    kind = "it cannot be reached: " if unreachable else ""
    return Cause(what=kind + "\n".join(own_words(result)), fix=otherwise)


def full_message(result: TaskResult) -> str:
    """Message and error output, of a loop those of its failed items; without Ansible's own prefixes."""
    if items := failed_items(result):
        return "\n".join(full_message(item) for item in items)
    parts = [_message(result), result.get("stderr"), result.get("module_stderr")]
    return "\n".join(str(part) for part in parts if part)


def failed_items(result: TaskResult) -> list[TaskResult]:
    items = result.get("results")
    return [item for item in items if isinstance(item, dict) and item.get("failed")] if isinstance(items, list) else []


def own_words(result: TaskResult) -> list[str]:
    """All that is known of what a failed task reported and printed, its last lines where it is much; never nothing."""
    if result.get("censored"):
        return ["its output is hidden, because it may hold secrets (no_log)"]
    if items := failed_items(result):
        return [f"{item.get('item')}: {line}" for item in items[:LINES] for line in own_words(item)]
    message = _message(result)
    lines = [line.strip() for line in f"{_exception(result, message)}{message}".splitlines() if line.strip()][:3]
    if "assertion" in result:
        lines.append(f"this does not hold: {result['assertion']}")
    how, printed = how_it_ended(result), _printed(result)
    if printed:
        lines += ["; ".join(filter(None, [how, "the end of what it printed:"])), *printed]
    elif how:
        lines.append(f"{how}; it printed nothing")
    return [line[:WIDTH] for line in lines] or ["it gave no message"]


def how_it_ended(result: TaskResult) -> str:
    code = result.get("rc")
    if code is None:
        return ""
    if not code:
        return "it ended well, but not as the task expects"
    number = -code if code < 0 else code - 128
    return f"killed by signal {number}" if 0 < number < 65 else f"exit code {code}"


def _printed(result: TaskResult) -> list[str]:
    """Errors last: they are what stays of much."""
    printed = [result.get("module_stdout"), result.get("stdout"), result.get("module_stderr"), result.get("stderr")]
    text = "\n".join(str(part or "") for part in printed)
    return [line.rstrip() for line in text.splitlines() if line.strip()][-LINES:]


def _message(result: TaskResult) -> str:
    return EMPTY.sub("", PREFIX.sub("", str(result.get("msg") or result.get("reason") or ""))).strip()


def _exception(result: TaskResult, message: str) -> str:
    """The exception's name, which Ansible leaves out; empty where a task failed in good order."""
    text = str(result.get("exception") or "")
    named = re.search(
        rf"^(?:\w+\.)*(\w+(?:Error|Exception|Expired|Interrupt|Exit)): {re.escape(message)}$", text, re.MULTILINE
    )
    return f"{named[1]}: " if message and named and not named[1].startswith("Ansible") else ""


def _line_around(text: str, found: re.Match[str]) -> str:
    start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
    return OVER_SSH.sub("", text[start : end if end >= 0 else len(text)]).strip()[:WIDTH]
