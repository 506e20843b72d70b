#!/usr/bin/python
# MIT License, see LICENSE
"""Name, size and SHA-256 of every file in a folder; what was hashed before and has not changed is not read again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.pass_files_on import known_hash, read_memo, write_memo

DOCUMENTATION = r"""
module: artifacts_info
short_description: What the relay is to hand on
author: Motley
description:
  - Lists name, size and SHA-256 of every file below a folder; changes nothing.
  - A file whose size and time have not changed since the last call is not read again.
options: {
  "folder": {"type": "path", "required": true, "description": "A folder of plain files"}
}
"""
EXAMPLES = """
- name: List and hash a model's files
  artifacts_info:
    folder: ~/ai-cluster/models/base/mine
  register: listed
"""
RETURN = r"""
files: {type: dict, returned: success, description: "Name to {size, sha256}"}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    folder = Path(module.params["folder"])
    if not folder.is_dir():
        module.fail_json(msg=f"there is no folder {folder}\nfix: fetch it on the controller first")
    module.exit_json(changed=False, files=facts(folder))


def facts(folder: Path) -> dict[str, dict[str, str | int]]:
    memo = read_memo(folder)
    files: dict[str, dict[str, str | int]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.name.startswith(".motley-"):
            continue
        files[name] = {"size": path.stat().st_size, "sha256": known_hash(name, path, memo)}
    with suppress(OSError):  # a folder of somebody else, or one that is read alone: it is hashed again the next time
        write_memo(folder, {name: memo[name] for name in files})
    return files


if __name__ == "__main__":
    main()
