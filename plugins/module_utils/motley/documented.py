"""A module takes the options that its page shows: they are written once, as JSON, which YAML's readers read as well."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator


class Answer(SystemExit):
    """How a module that looks inside another one ends."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


class Looking:
    """Stands for AnsibleModule where a module runs inside another one: in check mode, with these arguments."""

    arguments: dict[str, Any] | None = None
    """The arguments of the module that runs next; None: Ansible runs it, with its own AnsibleModule."""
    check_mode = True

    def __init__(self, options: dict[str, Any], arguments: dict[str, Any]) -> None:
        checked = ArgumentSpecValidator(options).validate(arguments)
        if checked.error_messages:
            self.fail_json(msg="; ".join(checked.error_messages))
        self.params = checked.validated_parameters

    def exit_json(self, **result: Any) -> NoReturn:
        raise Answer(result)

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        raise Answer({**result, "failed": True, "msg": msg})


def module_of(page: str) -> Any:
    """`page` is its DOCUMENTATION, with the options at the end: a node may have no reader of YAML."""
    options = json.loads(page.partition("\noptions: ")[2])
    if Looking.arguments is not None:
        return Looking(options, Looking.arguments)
    return AnsibleModule(argument_spec=options, supports_check_mode=True)
