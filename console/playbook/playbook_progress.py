"""What a playbook run has done so far, node by node: Ansible's events in, plain data out. Prints nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from console.playbook.ansible_errors import KNOCKS, Cause, explain
from console.playbook.ansible_events import AnsibleEvent, Contact, EventData, TaskResult

HIDDEN_TASKS = ("Validating arguments against", "Know every phase that is asked for", "Check every variable")
NOBODY = ("nobody answers at {at}", "switch it on (and check its cable), then run again")
FINDING = "contact"  # the phase that looks for the nodes


@dataclass(kw_only=True, slots=True)
class Phase:
    """What one phase did on one node."""

    changed: list[str] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # written, or in check mode: that would be
    measured: dict[str, float] = field(default_factory=dict)  # figures beside what it says
    seconds: float = 0
    failure: Cause | None = None
    dealt_with: Cause | None = None  # a failure after which it continued
    failed_task: str = ""
    ran: bool = False  # a phase whose every task is skipped was not there


@dataclass(kw_only=True, slots=True)
class NodeProgress:
    name: str
    phase: str = ""
    task: str = ""
    off: str = ""  # why it was skipped
    off_fix: str = ""
    since: float = 0
    phases: dict[str, Phase] = field(default_factory=dict)

    @property
    def failed(self) -> str:
        """The phase that failed here, if one did."""
        return next((name for name, phase in self.phases.items() if phase.failure), "")

    @property
    def changed(self) -> int:
        return sum(len(phase.changed) for phase in self.phases.values())


@dataclass(kw_only=True, slots=True)
class Progress:
    nodes: dict[str, NodeProgress] = field(default_factory=dict)
    phase: str = ""
    reached: tuple[str, str] = ("", "")  # the phase and the task that began last
    broken_off: bool = False  # a failure of some ended the work on all
    finished: list[tuple[NodeProgress, str]] = field(default_factory=list)  # node and phase, in order

    def take(self, event: AnsibleEvent) -> None:
        data: EventData = event.get("event_data") or {}
        kind = event.get("event", "")
        role = (data.get("role") or "").removeprefix("motley_")
        if kind == "playbook_on_task_start":
            self.reached = role, data.get("task", "")
            self._enter(role)
        elif kind == "runner_on_start":
            self._start(data, role)
        elif kind in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped"):
            self._result(kind, data, role)
        elif kind == "playbook_on_no_hosts_remaining":
            self.broken_off = True
        elif kind == "playbook_on_stats":
            self._settle({*(data.get("failures") or {}), *(data.get("dark") or {})})
            self._enter("")

    def _settle(self, failed: set[str]) -> None:
        """Marks who has failed by Ansible's count at the end: what came after it only tidied up (always)."""
        for name in failed & self.nodes.keys():
            node = self.nodes[name]
            if node.failed:
                continue
            rescued = [phase for phase in node.phases.values() if phase.dealt_with]
            last = Phase(failed_task=node.task, ran=True)
            phase = rescued[-1] if rescued else node.phases.setdefault(node.phase, last)
            phase.failure = phase.dealt_with or explain({})

    def _enter(self, role: str) -> None:
        """All nodes walk through the phases together: a new one means that the last is over everywhere."""
        if role == self.phase:
            return
        for node in self.nodes.values():
            if self.phase in node.phases:
                node.phases[self.phase].seconds = time.monotonic() - node.since
                self.finished.append((node, self.phase))
            node.since = time.monotonic()
        self.phase = role

    def _start(self, data: EventData, role: str) -> None:
        node = self.nodes.setdefault(data["host"], NodeProgress(name=data["host"], since=time.monotonic()))
        if data.get("task", "").startswith(HIDDEN_TASKS):
            return
        phase = node.phases.setdefault(role, Phase())
        phase.failure, phase.dealt_with = None, phase.failure or phase.dealt_with  # rescued
        node.phase, node.task = role, data.get("task", "")

    def _result(self, kind: str, data: EventData, role: str) -> None:
        node = self.nodes.setdefault(data["host"], NodeProgress(name=data["host"], since=time.monotonic()))
        result: TaskResult = data.get("res") or {}
        task = data.get("task", "")
        if "contacts" in result and role == FINDING:
            self._contacts(result["contacts"])
        hidden = task.startswith(HIDDEN_TASKS) and kind == "runner_on_ok"
        if hidden or kind == "runner_on_skipped" or data.get("ignore_errors"):
            return
        phase = node.phases.setdefault(role, Phase())
        phase.ran = True
        if kind != "runner_on_ok":
            phase.failure, phase.failed_task = explain(result, unreachable="unreach" in kind), task
            return
        if result.get("changed"):
            phase.changed.append(task)
            phase.files += files_of(result)
        if task.startswith("Prove that "):
            phase.proven.append(task.removeprefix("Prove that "))
        debug = data.get("task_action", "").endswith("debug")
        if message := result.get("motley_say") or (debug and result.get("msg")):
            phase.says.append(str(message))
        phase.measured |= result.get("measured") or {}

    def _contacts(self, contacts: dict[str, Contact]) -> None:
        for name, contact in contacts.items():
            node = self.nodes.setdefault(name, NodeProgress(name=name, since=time.monotonic()))
            if contact["state"] == "off":
                at = " or ".join(contact["tried"])
                what, node.off_fix = KNOCKS.get(contact.get("knock", ""), NOBODY)
                node.off = what.format(at=at)
                if contact["twin"]:
                    node.off += f" but {contact['twin']}"


def files_of(result: TaskResult) -> list[str]:
    """The files that a task's diff is about."""
    diffs = result.get("diff") or []
    return [
        str(diff["after_header"]) for diff in ([diffs] if isinstance(diffs, dict) else diffs) if "after_header" in diff
    ]
