"""A task of a playbook that begins here; it may end with a module on its node, or only look at the clock around one."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from ansible.plugins.action import ActionBase

from console.infra import OnNode, name_of, part
from train.errors import BadInput

Facts = dict[str, Any]


class OnController(ActionBase):
    """What a person got wrong is the task's message."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Facts | None = None) -> Facts:
        result: Facts = super().run(tmp, task_vars)
        known = task_vars or {}
        try:
            done = self.answer(known, self._task.args)
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}
        if isinstance(done, OnNode):
            found = self._execute_module(module_name=done.module, module_args=done.params, task_vars=known)
            done = {**found, **done.beside}
        return result | {"changed": False} | done

    @abstractmethod
    def answer(self, known: Facts, args: Facts) -> Facts | OnNode:
        """The task's result, or the module that has it, from all variables and what the task says itself."""


class InfraStep(OnController):
    """A step of a launch, as the host's infra does it: here, or by a module on the host."""

    step: str

    def answer(self, known: Facts, args: Facts) -> Facts | OnNode:
        done: Facts | OnNode = part(name_of(known["hostvars"][known["inventory_hostname"]]), self.step)(known, args)
        return done


class Clocked(ActionBase):
    """The module's result has `clock`, its first and its last look at the time."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: Facts | None = None) -> Facts:
        result: Facts = super().run(tmp, task_vars)
        asked_at = time.time()
        result |= self._execute_module(task_vars=task_vars)
        if seen := result.pop("clock", None):
            first, last = seen
            result["clock_off_s"] = round(off_by(asked_at, first, last, time.time()), 1)
        return result


def off_by(asked_at: float, first: float, last: float, answered_at: float) -> float:
    """Seconds that are certain, however long question and answer were on their way; above 0 where the node is ahead."""
    at_least, at_most = last - answered_at, first - asked_at
    return 0.0 if at_least <= 0 <= at_most else min(at_least, at_most, key=abs)
