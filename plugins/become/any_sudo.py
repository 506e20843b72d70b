"""Becomes root by whichever sudo a machine has: sudo, or the sudo-rs that Ubuntu links in its place since 25.10.

sudo-rs puts words of its own around the prompt that it is given, and refuses in other words. Our prompt holds a random
key, so the key alone tells whose question it is. Covered by tests/lab/test_sudo.py.
"""

from __future__ import annotations

import re

from ansible.plugins.become.sudo import BecomeModule as Sudo

DOCUMENTATION = """
name: any_sudo
short_description: Become root by sudo or sudo-rs
description:
  - As ansible.builtin.sudo, with the same variables and settings.
  - It also knows the prompt and the refusals of sudo-rs.
options:
  become_user:
    description: Whom to become
    default: root
    ini:
      - {section: privilege_escalation, key: become_user}
      - {section: sudo_become_plugin, key: user}
    vars: [{name: ansible_become_user}, {name: ansible_sudo_user}]
    env: [{name: ANSIBLE_BECOME_USER}, {name: ANSIBLE_SUDO_USER}]
    keyword: [{name: become_user}]
  become_exe:
    description: The program
    default: sudo
    ini:
      - {section: privilege_escalation, key: become_exe}
      - {section: sudo_become_plugin, key: executable}
    vars: [{name: ansible_become_exe}, {name: ansible_sudo_exe}]
    env: [{name: ANSIBLE_BECOME_EXE}, {name: ANSIBLE_SUDO_EXE}]
    keyword: [{name: become_exe}]
  become_flags:
    description: Its options
    default: -H -S -n
    ini:
      - {section: privilege_escalation, key: become_flags}
      - {section: sudo_become_plugin, key: flags}
    vars: [{name: ansible_become_flags}, {name: ansible_sudo_flags}]
    env: [{name: ANSIBLE_BECOME_FLAGS}, {name: ANSIBLE_SUDO_FLAGS}]
    keyword: [{name: become_flags}]
  become_pass:
    description: The password
    vars: [{name: ansible_become_password}, {name: ansible_become_pass}, {name: ansible_sudo_pass}]
    env: [{name: ANSIBLE_BECOME_PASS}, {name: ANSIBLE_SUDO_PASS}]
    ini: [{section: sudo_become_plugin, key: password}]
  sudo_chdir:
    description: Folder to go to first
    vars: [{name: ansible_sudo_chdir}]
    env: [{name: ANSIBLE_SUDO_CHDIR}]
    ini: [{section: sudo_become_plugin, key: chdir}]
"""


class BecomeModule(Sudo):
    fail = (*Sudo.fail, "failed, try again", "incorrect password attempt", "incorrect authentication attempt")
    missing = (*Sudo.missing, "interactive authentication is required")

    def check_password_prompt(self, b_output: bytes) -> bool:
        return bool(self.prompt) and self.prompt.encode() in b_output

    def strip_become_prompt(self, data: bytes) -> bytes:
        left: bytes = super().strip_become_prompt(data)
        return left if left == data else re.sub(rb"\A\] Password:\s*", b"", left)

    def _check_password_error(self, b_out: bytes, msg: str) -> bool:
        """The machine is asked in English; Ansible looks for it in the controller's language."""
        return msg.encode() in b_out
