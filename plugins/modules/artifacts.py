#!/usr/bin/python
# MIT License, see LICENSE
"""One node's part of the relay: receive a set of files, verify each, and hand them on to the next node meanwhile."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.errors import ModuleError
from ansible.module_utils.motley.pass_files_on import (
    Store,
    Target,
    hand_on,
    listed,
    megabytes,
    open_door,
    patience_s,
    receive,
)

DOCUMENTATION = r"""
module: artifacts
short_description: Files from the controller to all nodes, each byte once over each link
author: Motley
description:
  - Runs on all nodes in parallel; the action plugin of the same name adds what is marked below and feeds the first.
options: {
  "folder": {"type": "path", "required": true, "description": "Where the files go on the node"},
  "files": {"type": "dict", "required": true, "description": "Name to {size, sha256}"},
  "source": {"type": "path", "description": "Folder on the controller that holds them (action)"},
  "nodes": {"type": "list", "elements": "str",
    "description": "Who takes part, in the order of the chain; all of the play by default"},
  "verify": {"type": "bool", "default": false, "description": "Read files again whose size and time have not changed"},
  "prune": {"type": "bool", "default": false, "description": "Remove other files from the folder"},
  "port": {"type": "int", "default": 29890, "description": "A port that is open to the nodes and the controller"},
  "place": {"type": "int", "default": 1,
    "description": "Its place in the chain: the later, the longer it waits (action)"},
  "address": {"type": "str", "description": "Where this node listens (action)"},
  "after": {"type": "dict", "description": "The nodes after this one: name to address (action)"},
  "token": {"type": "str", "no_log": true,
    "description": "What the members of the chain know, and nobody else (action)"}
}
"""
EXAMPLES = r"""
- name: Hand a folder of the controller to all nodes
  artifacts:
    source: ~/models/mine
    folder: ~/ai-cluster/models/base/mine
    files: "{{ listed.files }}"
"""
RETURN = r"""
received: {type: int, returned: always, description: Bytes that came}
seconds: {type: float, returned: always, description: How long it took}
mbit_s: {type: float, returned: always, description: How fast it was}
handed_to: {type: str, returned: always, description: The node after this one; empty at the end of the chain}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    folder = Path(params["folder"])
    files = listed(params["files"])
    store = Store(folder, files)
    if module.check_mode:
        absent = [file.name for file in files if not (folder / file.name).is_file()]
        module.exit_json(changed=bool(absent), missing=absent)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        took_s, handed_to = take_and_hand_on(module, store)
    except OSError as wrong:
        if wrong.errno != errno.EADDRINUSE:
            raise
        module.fail_json(msg=port_taken(params["port"]))
    removed = prune(folder, {file.name for file in files}) if params["prune"] else []
    say = f"{folder.name}: {megabytes(store.received)} in {took_s:.1f} s" if store.received else "all was here"
    module.exit_json(
        changed=bool(store.received or removed),
        received=store.received,
        seconds=round(took_s, 2),
        mbit_s=round(store.received * 8 / took_s / 1e6, 1),
        handed_to=handed_to,
        motley_say=say,
    )


def take_and_hand_on(module: AnsibleModule, store: Store) -> tuple[float, str]:
    """How long it took to come, and the name of the node that has it from here; empty at the end of the chain."""
    params, wait_s = module.params, patience_s(store.files)
    with open_door(params["address"], params["port"]) as door:  # open at once: the sender may call while we look
        store.look(verify=params["verify"])
        free = shutil.disk_usage(store.folder).free
        if store.missing * 1.05 > free:
            module.fail_json(
                msg=f"{megabytes(store.missing)} are to come, {megabytes(free)} are free below {store.folder}\n"
                "fix: make room there (sudo du -xhd1 ~ | sort -h)"
            )
        targets = [Target(name, address) for name, address in params["after"].items()]
        followed: list[str] = []
        ask = (store, targets, params["port"], params["token"], wait_s)
        follower = threading.Thread(target=lambda: followed.append(hand_on(*ask)), daemon=True)
        follower.start()
        try:
            # Each node before this one may have to be given up first.
            receive(door, store, params["token"], wait_s * params["place"])
        except (ModuleError, OSError) as wrong:
            if "refused" in str(wrong):  # nobody after us can get a good one; else they are served by others
                store.stop(str(wrong))
                follower.join()
            module.fail_json(msg=f"{wrong}\nfix: {fix_for(wrong)}", received=store.received)
    took_s = max(time.monotonic() - store.began, 0.001) if store.began else 0.001
    store.remember()
    follower.join()
    return took_s, "".join(followed)


def port_taken(port: int) -> str:
    return (
        f"port {port} is taken: most likely another launch brings its files at this moment\n"
        f"fix: the same again in a minute; if it stays taken: sudo ss -ltnp 'sport = :{port}' shows by whom"
    )


def fix_for(wrong: Exception) -> str:
    if "refused" in str(wrong):
        return "the sender's copy is damaged or was changed: remove it from the controller's cache, then run again"
    return "run again: it continues where it broke off (see that the machine before it in the inventory is on)"


def prune(folder: Path, wanted: set[str]) -> list[str]:
    others = [p for p in folder.rglob("*") if p.is_file() and str(p.relative_to(folder)) not in wanted]
    surplus = [path for path in others if not path.name.startswith(".motley-")]
    for path in surplus:
        path.unlink()
    return [str(path.relative_to(folder)) for path in surplus]


if __name__ == "__main__":
    main()
