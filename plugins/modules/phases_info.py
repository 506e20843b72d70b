#!/usr/bin/python
# MIT License, see LICENSE
"""Whether a node is as the phases of a bootstrap left it: their own modules, each in check mode, in one visit."""

from __future__ import annotations

import json
import os
import pwd
import traceback
from types import ModuleType
from typing import Any

from ansible.module_utils.modules import gpu_driver, gpu_info, netplan_change, python_env, undoable_state, workspace
from ansible.module_utils.motley.documented import Answer, Looking, module_of

DOCUMENTATION = r"""
module: phases_info
short_description: What each phase of a bootstrap would do on a node, looked at once
author: Motley
description:
  - Runs the modules of the phases with their arguments in check mode, one after the other, and returns their answers.
  - A phase whose modules would all change nothing has left the node as it is. Changes nothing.
  - The environment of the login user is looked at as that user.
options: {
  "calls": {"type": "str", "required": true, "no_log": true,
    "description": [
      "JSON: phase to a list of calls. Each has module and args, and may have user: run as the login user.",
      "It may have only_with: a word that the answer before it must have for this call to be made.",
      "It may have proves: what is proven where it would change nothing.",
      "As one text: the arguments may hold a Wi-Fi's password, and its mask is to hide no word of the answers."
    ]},
  "user": {"type": "str", "required": true, "description": "The login user"},
  "node": {"type": "dict",
    "description": "Its name, user, address and port, to try whether the controller's key opens it (action)"},
  "state_folder": {"type": "path", "description": "Holds known_hosts and the controller's key (action)"}
}
"""
EXAMPLES = """
- name: See whether the machine would be changed
  phases_info:
    user: "{{ ansible_user }}"
    calls: "{{ {'hostname': [{'module': 'undoable_state', 'args': {'phase': 'hostname'}}]} | to_json }}"
    node: {name: gpu-master, user: anna, address: 192.168.1.100, port: 22}
    state_folder: .motley
  become: true
  register: seen
"""
RETURN = r"""
phases: {type: dict, returned: always, description: Phase to the answers of its calls}
would: {type: dict, returned: always, description: Phase to what it would do; empty where it would do nothing}
proven: {type: dict, returned: always, description: Phase to what its calls prove where it would do nothing}
"""
MODULES: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (gpu_driver, gpu_info, netplan_change, python_env, undoable_state, workspace)
}


def main() -> None:
    module = module_of(DOCUMENTATION)
    calls = json.loads(module.params["calls"])
    phases = {phase: answers(listed, module.params["user"]) for phase, listed in calls.items()}
    module.exit_json(
        changed=False,
        phases=phases,
        would={phase: would(found) for phase, found in phases.items()},
        proven={phase: [call["proves"] for call in listed if "proves" in call] for phase, listed in calls.items()},
    )


def answers(calls: list[dict[str, Any]], user: str) -> list[dict[str, Any]]:
    """The answers up to the first that would change something: what comes after it may stand on that."""
    found: list[dict[str, Any]] = []
    for call in calls:
        if found and call.get("only_with") and not found[-1].get(call["only_with"]):
            break
        found.append(ask(call, pwd.getpwnam(user) if call.get("user") else None))
        if would(found):
            break
    return found


def would(found: list[dict[str, Any]]) -> str:
    for answer in found:
        if answer.get("failed"):
            return str(answer.get("msg") or "its look failed")
        if answer.get("changed"):
            return str(answer.get("motley_say") or "it is not as it was left")
    return ""


def ask(call: dict[str, Any], account: pwd.struct_passwd | None) -> dict[str, Any]:
    """In a process of its own: it may be another user's, and what fails in it fails there."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = json.dumps(answer_of(call, account))
            with os.fdopen(theirs, "w") as stream:
                stream.write(text)
        finally:  # never back into what this process was forked from
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"failed": True, "msg": f"{call['module']} gave no answer"}


def answer_of(call: dict[str, Any], account: pwd.struct_passwd | None) -> dict[str, Any]:
    try:
        if account:
            become(account)
        Looking.arguments = call["args"]
        MODULES[call["module"]].main()
    except Answer as answer:
        answer.result.pop("diff", None)
        return answer.result
    except BaseException:  # whatever it is: the phase itself will meet it, and tell
        return {"failed": True, "msg": traceback.format_exc().strip().splitlines()[-1]}
    return {"failed": True, "msg": f"{call['module']} ended without an answer"}


def become(account: pwd.struct_passwd) -> None:
    if os.geteuid() == 0:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    os.environ.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    os.chdir(account.pw_dir)


if __name__ == "__main__":
    main()
