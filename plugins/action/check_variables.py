"""Every variable of several roles at once, before any of them begins: a wrong one is told while nothing is changed yet.

Ansible's own validation stands before each role, on each host, and would tell it when half of the phases are done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from console.controller_action import Facts, OnController
from train.errors import BadInput

ROLES = Path(__file__).parents[2] / "roles"


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        options = {name: option for role in args["roles"] for name, option in self._options(role).items()}
        nodes_of: dict[str, list[str]] = {}
        for node in known["ansible_play_hosts"]:
            for error in errors(options, known["hostvars"][node]):
                nodes_of.setdefault(error, []).append(node)
        if nodes_of:
            lines = [f"{', '.join(nodes)}: {error}" for error, nodes in nodes_of.items()]
            raise BadInput("\n".join(lines), fix="fix: docs/reference.md has every variable")
        return {"variables": len(options)}

    def _options(self, role: str) -> dict[str, Any]:
        spec = self._loader.load_from_file(str(ROLES / role / "meta/argument_specs.yml"))
        return dict(spec["argument_specs"]["main"].get("options", {}))


def errors(options: dict[str, Any], node: Any) -> list[str]:
    found = {name: value for name in options if (value := value_of(node, name)) is not None}
    unknown_yet = {name for name in options if name in node} - found.keys()
    checked = {name: option for name, option in options.items() if name not in unknown_yet}
    return list(ArgumentSpecValidator(checked).validate(found).error_messages)


def value_of(node: Any, name: str) -> Any:
    """None: not set; or made of what is only known later."""
    try:
        return node.get(name)
    except AnsibleUndefinedVariable:
        return None
