#!/usr/bin/python
# MIT License, see LICENSE
"""Make a node's files and settings what they are to be, in one go, remembering first what was there."""

from __future__ import annotations

import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import difference
from ansible.module_utils.motley.undo_record import (
    Before,
    as_its_person,
    beside,
    printable,
    read_text,
    with_block,
    write_file,
)

DOCUMENTATION = r"""
module: undoable_state
short_description: Files and settings of one phase, with a memory of what was before
author: Motley
description:
  - Writes files, or a marked block in a file of the system, and runs commands where their check does not hold.
  - Records what was there first under O(phase), for M(node_undo).
  - Supports check mode and diff.
options: {
  "phase": {"type": "str", "required": true, "description": "Under this name the state before is kept"},
  "files": {"type": "list", "elements": "dict", "default": [],
    "description": [
      "Each has path and content (the whole file) or block (our marked part of it), and may have mode and owner.",
      "drop: lines that match this pattern become comments. names: host names that no other line may hold.",
      "keep: lines of the old block that match this pattern stay where the new one has none.",
      "stay: lines of the old block or file that match this pattern stay beside ours.",
      "if_exists: only where this path exists."
    ]},
  "settle": {"type": "list", "elements": "dict", "default": [],
    "description": [
      "Each has check (a read-only command), expect (its output; else success is enough), run (what makes it so).",
      "undo: what takes it back; {before} stands for the output found first.",
      "makes: files that it makes, to be removed by the undo. on_change: run after any file changed as well.",
      "It fails where the check does not hold afterwards.",
      "What the checks print at the end is returned as found."
    ]},
  "say": {"type": "str", "default": "", "description": "What to report about it"}
}
"""
EXAMPLES = r"""
- name: Have a time service
  undoable_state:
    phase: clock
    files:
      - {path: /etc/example.conf, content: "wait=0\n"}
    settle:
      - check: [systemctl, is-active, chrony]
        run: [systemctl, start, chrony]
        undo: [systemctl, stop, chrony]
"""
RETURN = r"""
wrote: {type: list, elements: str, returned: always, description: Files that were written}
ran: {type: list, elements: str, returned: always, description: Commands that were run}
found: {type: list, elements: str, returned: always, description: What each check printed at the end}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    before = Before(module.params["phase"])
    try:
        changes = [change for file in module.params["files"] if (change := file_change(file))]
        for change in [] if module.check_mode else changes:
            before.keep(change.path)
            write_file(change.path, change.new, change.mode, change.owner)
            before.wrote(change.path)
    except PermissionError as error:
        fix = f"on that machine: sudo ls -ld {error.filename}; give it to them with chown, or remove it if it is a link"
        module.fail_json(msg=f"{error.filename} is closed to the person in whose folder it is\nfix: {fix}")
    settled = [settle(module, before, setting, bool(changes)) for setting in module.params["settle"]]
    ran = [command for command, _ in settled if command]
    module.exit_json(
        changed=bool(changes or ran),
        wrote=[str(change.path) for change in changes],
        ran=ran,
        found=[found for _, found in settled],
        motley_say=module.params["say"],
        diff=[difference(change.path, printable(change.old), printable(change.new)) for change in changes],
    )


class WantedFile(TypedDict, total=False):
    """An entry of `files`."""

    path: str
    if_exists: str
    owner: str
    mode: str
    content: str
    block: str
    names: list[str]
    drop: str
    keep: str
    stay: str


class Setting(TypedDict, total=False):
    """An entry of `settle`."""

    check: list[str]
    expect: str
    run: list[str]
    on_change: bool
    makes: list[str]
    undo: list[str]


@dataclass(frozen=True)
class Change:
    """What is written to a file."""

    path: Path
    old: str | None
    new: str
    mode: int
    owner: tuple[int, int]


def file_change(file: WantedFile) -> Change | None:
    """What must be written for one file; None when it is right already, or not wanted on this machine."""
    path = Path(file["path"])
    if file.get("if_exists") and not Path(file["if_exists"]).exists():
        return None
    owner = owner_of(file.get("owner", "root"))
    with as_its_person(path):
        old = read_text(path)
        status = path.stat() if old is not None else None
    new = new_content(old or "", file) if "content" in file else new_block(old or "", file)
    mode = int(str(file.get("mode", "0644")), 8)
    if "block" in file and status:  # a file that is not ours keeps its mode and owner
        mode, owner = status.st_mode & 0o7777, (status.st_uid, status.st_gid)
    same = old == new and status and status.st_mode & 0o7777 == mode
    return None if same else Change(path, old, new, mode, owner)


def new_content(old: str, file: WantedFile) -> str:
    if not file.get("stay"):
        return str(file["content"])
    return "".join(f"{line}\n" for line in beside(old.splitlines(), file["content"].splitlines(), file["stay"]))


def new_block(old: str, file: WantedFile) -> str:
    drop, keep, stay = file.get("drop", ""), file.get("keep", ""), file.get("stay", "")
    return with_block(old, file["block"], names=file.get("names", []), drop=drop, keep=keep, stay=stay)


def owner_of(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def settle(module: AnsibleModule, before: Before, setting: Setting, files_changed: bool) -> tuple[str, str]:
    """Run the command where the check does not hold; returns it if it ran, and what the check prints at the end."""
    holds, found = check(setting)
    if holds and not (files_changed and setting.get("on_change")):
        return "", found
    command = [str(word) for word in setting["run"]]
    if module.check_mode:
        return " ".join(command), found
    for path in setting.get("makes", []):
        before.keep(Path(path))
    if setting.get("undo"):
        before.keep_undo([str(word).replace("{before}", found) for word in setting["undo"]])
    done = run(command)
    holds, found = check(setting)
    if done.returncode or not holds:
        what = (done.stderr or done.stdout).strip() or f"afterwards '{' '.join(setting['check'])}' says: {found}"
        module.fail_json(msg=f"'{' '.join(command)}' did not help: {what}")
    return " ".join(command), found


def check(setting: Setting) -> tuple[bool, str]:
    done = run([str(word) for word in setting["check"]])
    found = done.stdout.strip()
    return (found == str(setting["expect"]) if "expect" in setting else done.returncode == 0), found


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
