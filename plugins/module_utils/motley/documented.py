"""A module takes the options that its page shows: they are written once, as JSON, which YAML's readers read as well."""

from __future__ import annotations

import json
from typing import Any, TypedDict

from ansible.module_utils.basic import AnsibleModule


class Done(TypedDict, total=False):
    """What a module says that it did."""

    changed: bool
    motley_say: str
    diff: dict[str, str]
    seconds: float


def module_of(page: str, **more: Any) -> AnsibleModule:
    """`page` is its DOCUMENTATION, with the options at the end: a node may have no reader of YAML. `more`: what
    AnsibleModule takes beside the options, such as `required_if`."""
    options = json.loads(page.partition("\noptions: ")[2])
    return AnsibleModule(argument_spec=options, supports_check_mode=True, **more)
