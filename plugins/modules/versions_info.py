#!/usr/bin/python
# MIT License, see LICENSE
"""Every version of a node that must or may agree with the others'. Reads files only: importing torch takes seconds."""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.versions import collect

DOCUMENTATION = r"""
module: versions_info
short_description: Read all versions of a node at once; what is not there is null
author: Motley
description:
  - Reads the versions of system, driver, packages, models and data sets from files; starts no Python.
  - Changes nothing.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "packages": {"type": "list", "elements": "str", "required": true,
    "description": "Python packages to return the versions of"},
  "full": {"type": "bool", "default": false, "description": "Read all files, whatever their times say"}
}
"""
EXAMPLES = """
- name: Read every version
  versions_info:
    home: ~/ai-cluster
    packages: [torch, transformers]
  register: seen
"""
RETURN = r"""
versions: {type: dict, returned: always, description: Key to version or hash; null where there is none}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    start, params = time.monotonic(), module.params
    found = collect(Path(params["home"]), params["packages"], full=params["full"], write=not module.check_mode)
    module.exit_json(changed=False, versions=found, took_s=round(time.monotonic() - start, 2))


if __name__ == "__main__":
    main()
