#!/usr/bin/python
# MIT License, see LICENSE
"""A few small files of the login user, each replaced in one step; folders in their way are moved aside first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_files
short_description: Write small files below a folder
description:
  - Writes each file that differs in content or mode, in one step; a reader never sees a half of it.
  - Nothing is recorded for an undo; files of the system are for M(recorded_state).
options:
  home: {type: path, required: true, description: The folder that all paths are below}
  files: {type: str, required: true, description: "JSON: a list of path, content, mode (a number). It may hold a token"}
  aside: {type: list, elements: str, default: [], description: Folders below home that are moved aside first}
  aside_as: {type: str, default: "", description: What is put behind their names}
  say: {type: str, default: "", description: What to tell when something was written}
"""
EXAMPLES = r"""
- name: Write the run's settings
  node_files:
    home: ~/ai-cluster
    files:
      - {path: config/training_config.yaml, content: "steps: 40\n", mode: 420}  # 0644
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            # One text: what is in it is masked in no other, so that the diff, with its own mask, can be read.
            "files": {"type": "str", "required": True, "no_log": True},
            "aside": {"type": "list", "elements": "str", "default": []},
            "aside_as": {"type": "str", "default": ""},
            "say": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wish = module.params
    home, files = Path(wish["home"]), json.loads(wish["files"])
    moved = [home / name for name in wish["aside"] if (home / name).is_dir()]
    odd = [file for file in files if differs(home / file["path"], file)]
    if not module.check_mode:
        for folder in moved:
            folder.rename(folder.with_name(folder.name + wish["aside_as"]))
        odd = [file for file in files if differs(home / file["path"], file)]
    diff = [difference(home / file["path"], file) for file in odd]
    if not module.check_mode:
        for file in odd:
            write(home / file["path"], file)
    module.exit_json(changed=bool(odd or moved), diff=diff, motley_say=wish["say"])


def differs(path: Path, file: dict[str, Any]) -> bool:
    try:
        return path.read_text() != file["content"] or path.stat().st_mode & 0o777 != int(file["mode"])
    except OSError:
        return True


def difference(path: Path, file: dict[str, Any]) -> dict[str, Any]:
    secret = int(file["mode"]) & 0o077 == 0
    before = path.read_text() if path.is_file() and not secret else ""
    after = "(not shown: it holds a token)\n" if secret else file["content"]
    return {"before_header": str(path), "after_header": str(path), "before": before, "after": after}


def write(path: Path, file: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(file["content"])
    new.chmod(int(file["mode"]))
    new.replace(path)


if __name__ == "__main__":
    main()
