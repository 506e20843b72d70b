#!/usr/bin/python
# MIT License, see LICENSE
"""Put back what a phase found on a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import difference
from ansible.module_utils.motley.undo_record import Before, of_others, printable, read_text, without_own, write_file

DOCUMENTATION = r"""
module: node_undo
short_description: Put back what a phase found before it changed a node
author: Motley
description:
  - Runs the recorded commands, puts the recorded files back and forgets the record; without one nothing changes.
  - A file that somebody changed after Motley is named in the result.
options: {
  "phase": {"type": "str", "required": true, "description": "The phase whose record is used"},
  "peek": {"type": "bool", "default": false, "description": "Only report what is recorded"},
  "own": {"type": "str", "default": "",
    "description": "This controller's line in a file with a block of ours, such as its key"},
  "others": {"type": "str", "default": "",
    "description": "Pattern of such lines: while another's stands, only our own goes"},
  "reload": {"type": "list", "elements": "list", "default": [],
    "description": "Commands to run after the files are back"}
}
"""
EXAMPLES = r"""
- name: Undo the firewall
  node_undo:
    phase: firewall
    reload:
      - [systemctl, daemon-reload]
"""
RETURN = r"""
files: {type: list, returned: with O(peek=true), description: Paths of the files that it would put back}
reached_at: {type: str, returned: with O(peek=true), description: The node's address before}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    before = Before(module.params["phase"])
    if not before.recorded:
        if not module.check_mode and not module.params["peek"]:
            before.forget()  # what an undo that broke off at its very end has left
        module.exit_json(changed=False, files=[], reached_at="", motley_say="nothing to put back")
    if module.params["peek"]:
        module.exit_json(changed=False, files=list(before.data["files"]), reached_at=before.data.get("reached_at", ""))
    if module.params["others"]:
        leave_to_others(module, before)
    diff = [
        difference(path, printable(read_text(Path(path))), printable(was))
        for path, was in before.contents().items()
        if not path.startswith(("/etc/netplan/", "/etc/network/"))  # may hold a Wi-Fi's password
    ]
    remarks: list[str] = []
    if not module.check_mode:
        switch_off(module, before)  # services first: they are stopped by the files that go next
        remarks = before.restore()
        for command in module.params["reload"]:
            module.run_command([str(word) for word in command], check_rc=True)
        before.forget()
    count = len(before.data["files"])
    say = "; ".join([f"{count} file{'s' if count != 1 else ''} put back", *remarks])
    module.exit_json(changed=True, motley_say=say, diff=diff)


def leave_to_others(module: AnsibleModule, before: Before) -> None:
    """Somebody else still uses what this phase did here: only our own line goes, and the record stays theirs."""
    own, others = module.params["own"], module.params["others"]
    for path in map(Path, before.data["files"]):
        now = read_text(path) or ""
        if not (theirs := of_others(now, own, others)):
            continue
        new = without_own(now, own, others)
        if new != now and not module.check_mode:
            status = path.stat()
            write_file(path, new, status.st_mode & 0o7777, (status.st_uid, status.st_gid))
            before.wrote(path)
        who = ", ".join(line.split()[-1] for line in theirs)
        module.exit_json(
            changed=new != now,
            diff=[difference(path, printable(now), printable(new))],
            motley_say=f"only this controller's key goes: {who} still uses this node",
        )


def switch_off(module: AnsibleModule, before: Before) -> None:
    try:
        before.run_undo()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        command = before.data["undo"][-1]
        why = f"there is no {command[0]}"
        if isinstance(error, subprocess.CalledProcessError):
            why = (error.stderr or error.stdout).strip() or f"exit code {error.returncode}"
        fix = f"make that command work on the node, then again: ./motley undo --phase {module.params['phase']}"
        module.fail_json(msg=f"'{' '.join(command)}' failed: {why}\nfix: {fix}")


if __name__ == "__main__":
    main()
