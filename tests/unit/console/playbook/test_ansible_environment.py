"""Somebody's own environment ends no command that needs Ansible."""

from __future__ import annotations

import locale
import os

import pytest

from console.playbook import ansible_environment
from console.playbook.ansible_environment import ROOT


def test_a_persons_settings_for_other_playbooks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would hide our plugins, or need what is not in our environment."""
    kept = {"ANSIBLE_VAULT_PASSWORD_FILE": "/v", "ANSIBLE_BECOME_PASSWORD_FILE": "/s", "ANSIBLE_NOCOLOR": "1"}
    lost = {"ANSIBLE_CONFIG": "/mine.cfg", "ANSIBLE_STDOUT_CALLBACK": "yaml", "ANSIBLE_ROLES_PATH": "/mine"}
    monkeypatch.setattr(os, "environ", {**kept, **lost})
    ansible_environment.settle()
    found = {name: value for name, value in os.environ.items() if name.startswith("ANSIBLE_")}
    assert found == kept | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"LC_ALL": "xx_YY.UTF-8"}, "C.UTF-8"),
        ({"LANG": "xx_YY.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LANG": "C.UTF-8"}, ""),
    ],
)
def test_ansible_gets_a_locale_that_is_here(
    before: dict[str, str], after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "ANSIBLE_CONFIG"):
        monkeypatch.setenv(name, "")
    for name in [name for name in os.environ if name == "LANG" or name.startswith("LC_")]:
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    process = locale.setlocale(locale.LC_ALL)
    ansible_environment.settle()
    assert os.environ.get("LC_ALL", "") == after and locale.setlocale(locale.LC_ALL) == process
