#!/usr/bin/python
# MIT License, see LICENSE
"""A few small files of the login user, each replaced in one step; old folders are moved aside first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.files import difference
from ansible.module_utils.train.files import set_aside, write_atomic

DOCUMENTATION = r"""
module: node_files
short_description: Write small files below a folder
author: Motley
description:
  - Writes each file that differs in content or mode, in one step; a reader never sees a half of it.
  - Nothing is recorded for an undo; files of the system are for M(undoable_state).
options: {
  "home": {"type": "path", "required": true, "description": "The folder that all paths are below"},
  "files": {"type": "str", "required": true, "no_log": true,
    "description": "JSON: a list of path, content, mode (a number). It may hold a token"},
  "aside": {"type": "list", "elements": "str", "default": [],
    "description": "Folders below home that are moved aside first, under a name that says when"}
}
"""
EXAMPLES = r"""
- name: Write the run's settings
  node_files:
    home: ~/ai-cluster
    files: "{{ [{'path': 'config/training_config.yaml', 'content': 'steps: 40\n', 'mode': 420}] | to_json }}"  # 0644
"""
RETURN = """
changed: {type: bool, returned: always, description: "Whether something was written or moved aside"}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    # The files come as one text: its mask hides it whole, and no word of the diff, which has a mask of its own.
    home, files = Path(params["home"]), json.loads(params["files"])
    moved = [home / name for name in params["aside"] if (home / name).is_dir()]
    odd = [file for file in files if differs(home / file["path"], file)]
    if not module.check_mode:
        for folder in moved:
            set_aside(folder)
        odd = [file for file in files if differs(home / file["path"], file)]
    diff = [shown(home / file["path"], file) for file in odd]
    if not module.check_mode:
        for file in odd:
            write_atomic(home / file["path"], file["content"].encode(), mode=int(file["mode"]))
    module.exit_json(changed=bool(odd or moved), diff=diff)


class WantedFile(TypedDict):
    path: str
    content: str
    mode: int | str


def differs(path: Path, file: WantedFile) -> bool:
    try:
        return path.read_text() != file["content"] or path.stat().st_mode & 0o777 != int(file["mode"])
    except OSError:
        return True


def shown(path: Path, file: WantedFile) -> dict[str, str]:
    secret = int(file["mode"]) & 0o077 == 0
    before = path.read_text() if path.is_file() and not secret else ""
    after = "(not shown: it holds a token)\n" if secret else file["content"]
    return difference(path, before, after)


if __name__ == "__main__":
    main()
