"""What Ansible finds in the environment: our ansible.cfg, and a locale that it takes."""

from __future__ import annotations

import locale
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THEIRS = re.compile("ANSIBLE_(VAULT_|.*PASSWORD_FILE|(FORCE_|NO)COLOR|COLOR_|DEBUG|VERBOSITY|LOG_PATH)")
"""What counts of a person's own settings for Ansible: the others are for other playbooks, and may hide our plugins."""


def settle() -> None:
    for name in [name for name in os.environ if name.startswith("ANSIBLE_") and not THEIRS.match(name)]:
        del os.environ[name]
    os.environ["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")  # Ansible reads none in a folder open to all
    if not has_usable_locale():
        os.environ["LC_ALL"] = "C.UTF-8"  # Debian and Ubuntu always have it


def has_usable_locale() -> bool:
    """Whether Ansible takes the locale: ssh brings that of another computer along, which need not be installed here."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return locale.nl_langinfo(locale.CODESET) == "UTF-8"
    except locale.Error:
        return False
    finally:
        locale.setlocale(locale.LC_ALL, before)
