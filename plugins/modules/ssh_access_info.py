#!/usr/bin/python
# MIT License, see LICENSE
"""Who may log in on a node besides this controller, and how somebody still could once its key is gone."""

from __future__ import annotations

import pwd
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.listening_ports import connection
from ansible.module_utils.motley.ssh_access import (
    has_password,
    key_files,
    lines_with_keys,
    logins,
    real_keys,
    settings_of,
    why_none,
)
from ansible.module_utils.motley.undo_record import of_others, read_text, without_own

DOCUMENTATION = r"""
module: ssh_access_info
short_description: Who can log in on a node without this controller's key
description:
  - Asks the node's sshd what it accepts of the login user at the controller's address, and reads the files of keys.
  - Changes nothing.
author: Motley
options: {
  "user": {"type": "str", "required": true, "description": "The login user"},
  "own": {"type": "str", "required": true, "description": "This controller's public key"},
  "others": {"type": "str", "required": true,
    "description": "Pattern of the lines in Motley's block that are controllers' keys"},
  "address": {"type": "str", "default": "",
    "description": "The controller's address, where the login itself does not show it"}
}
"""
EXAMPLES = """
- name: See who can log in without this controller's key
  ssh_access_info:
    user: anna
    own: "{{ lookup('ansible.builtin.file', '.motley/controller_ed25519.pub') }}"
    others: .* motley-controller@\\S+
  become: true
  register: seen
"""
RETURN = r"""
others: {type: list, returned: always, description: The other controllers that have a key here}
key_files: {type: list, returned: always, description: "Where its sshd looks for this user's keys, empty: unknown"}
ours: {type: bool, returned: always, description: Whether this controller has one}
logins: {type: list, returned: always, description: How one can log in once the controller's key is gone}
reason: {type: str, returned: always, description: Why nobody could, where it is none}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    account = pwd.getpwnam(params["user"])
    block = read_text(Path(account.pw_dir, ".ssh/authorized_keys")) or ""
    others = [line.split()[-1] for line in of_others(block, params["own"], params["others"])]
    who = connection().split() or [params["address"]]
    settings = settings_of(ask_sshd(module, params["user"], who))
    paths = key_files(settings, account.pw_name, account.pw_dir, account.pw_uid)
    files = [read_text(path) or "" for path in paths]
    left = [without_own(text, params["own"], params["others"]) for text in files]
    keys = {key for text in left for key in real_keys(text, settings, who[0], time.time())}
    password = has_password(account.pw_name, read_text(Path("/etc/shadow")) or "")
    say = f"another controller has its key here already: {', '.join(others)}; it stays" if others else ""
    module.exit_json(
        changed=False,
        others=others,
        key_files=[str(path) for path in paths],
        ours=" ".join(params["own"].split()[:2]) in block,
        logins=logins(settings, len(keys), password=password, root=account.pw_uid == 0),
        reason=why_none(settings, sum(map(lines_with_keys, left)), len(keys)),
        motley_say=say,
    )


def ask_sshd(module: AnsibleModule, user: str, who: list[str]) -> str:
    """The sshd's settings as they hold for this user at this address; nothing where it does not answer."""
    names = ("addr", "", "laddr", "lport")  # the port at the other end decides nothing
    at = [f"{name}={value}" for name, value in zip(names, who) if name]  # noqa: B905  as many as are known
    sshd = module.get_bin_path("sshd", opt_dirs=["/usr/sbin", "/usr/local/sbin"])
    if not sshd:
        return ""
    command = [sshd, "-T", "-C", ",".join([f"user={user}", f"host={who[0]}", *at])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout


if __name__ == "__main__":
    main()
