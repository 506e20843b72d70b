"""What ansible-runner reports of a playbook, as far as it is read here."""

from __future__ import annotations

from typing import TypedDict


class Contact(TypedDict, total=False):
    """How the role motley_contact found a node."""

    state: str
    address: str
    tried: list[str]
    twin: str
    knock: str


class TaskResult(TypedDict, total=False):
    """What Ansible reports of a task."""

    msg: str
    reason: str
    stdout: str
    stderr: str
    module_stdout: str
    module_stderr: str
    exception: str
    rc: int | None
    assertion: str
    censored: str
    results: list[TaskResult]
    item: object
    failed: bool
    unreachable: bool
    skipped: bool
    changed: bool
    diff: list[dict[str, str]] | dict[str, str]
    motley_say: str
    measured: dict[str, float]
    contacts: dict[str, Contact]


class EventData(TypedDict, total=False):
    host: str
    role: str | None
    task: str
    task_action: str
    ignore_errors: bool | None
    res: TaskResult
    failures: dict[str, int]
    dark: dict[str, int]
    """Hosts that could not be reached."""


class AnsibleEvent(TypedDict, total=False):
    """What ansible-runner reports."""

    event: str
    event_data: EventData
