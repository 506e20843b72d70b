#!/usr/bin/python
# MIT License, see LICENSE
"""Debian packages that a phase needs, from the package lists that are there as long as they will do."""

from __future__ import annotations

from ansible.module_utils.motley.apt import Apt
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.errors import ModuleError

DOCUMENTATION = r"""
module: apt_packages
short_description: Install packages where they are missing
author: Motley
description:
  - Fetches new package lists only where the present ones do not lead to the packages, so a dead source does no harm.
  - Needs no python3-apt, and in check mode no package lists.
options: {
  "names": {"type": "list", "elements": "str", "required": true, "description": "Which packages"},
  "wait_s": {"type": "int", "default": 300, "description": "How long to wait for another program that uses apt"}
}
"""
EXAMPLES = r"""
- name: Have nftables
  apt_packages:
    names: [nftables]
"""
RETURN = r"""
missing: {type: list, elements: str, returned: always, description: What was not there}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    apt = Apt(module.params["wait_s"])
    try:
        missing = sorted(set(module.params["names"]) - set(apt.packages()))
        if missing and not module.check_mode:
            install(apt, missing)
    except ModuleError as failure:
        fix = "put right what apt reports (sudo apt-get update; sudo apt-get check), then run again"
        module.fail_json(msg=f"{' '.join(module.params['names'])} cannot be installed: {failure}\nfix: {fix}")
    module.exit_json(changed=bool(missing), missing=missing)


def install(apt: Apt, names: list[str]) -> None:
    words = ("--no-install-recommends", "install", *names)
    try:
        apt.change(*words)
    except ModuleError:  # the lists of a fresh machine may be empty, those of another old
        of_lists = apt.refresh()
        try:
            apt.change(*words)
        except ModuleError as failure:
            raise ModuleError("; ".join(filter(None, (str(failure), of_lists)))) from None


if __name__ == "__main__":
    main()
