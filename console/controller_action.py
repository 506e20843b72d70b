"""A task of a playbook that runs here, for which nobody need be connected to its node."""

from __future__ import annotations

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
        try:
            return result | {"changed": False} | self.answer(task_vars or {}, self._task.args)
        except BadInput as finding:
            return result | {"failed": True, "msg": str(finding)}

    @abstractmethod
    def answer(self, known: Facts, args: Facts) -> Facts:
        """The task's result, from all variables and what the task says itself."""


class InfraStep(OnController):
    """A step of a launch, as the host's infra does it: here, or by a module on the host."""

    step: str

    def answer(self, known: Facts, args: Facts) -> Facts:
        infra = name_of(known["hostvars"][known["inventory_hostname"]])
        done = part(infra, self.step)(known, args)
        if not isinstance(done, OnNode):
            return dict(done)
        found = self._execute_module(module_name=done.module, module_args=done.params, task_vars=known)
        return {**found, **done.beside}
