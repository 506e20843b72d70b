"""Which market there is, and its key: from the environment, from a file that ansible-vault has locked, or from the file
that stands there for the timer alone. The key is in no message, no argument and no log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from console.rent.clore import IMAGE, URL, Clore
from console.rent.known_key import KEY, known_key
from console.rent.lease import folder
from console.rent.market import Market
from train.errors import BadInput

LOCKED = "key.vault"


def market(key: str, timeout_s: float = 15.0) -> Market:
    """MOTLEY_MARKET is another place that speaks the same, as the lab's."""
    url = os.environ.get("MOTLEY_MARKET") or URL
    if not (url.startswith("https://") or is_here(url)):
        raise BadInput(f"MOTLEY_MARKET is {url}: the key would travel unencrypted", fix="fix: one with https://")
    return Clore(key=key, url=url, image=os.environ.get("MOTLEY_IMAGE") or IMAGE, timeout_s=timeout_s)


def is_here(url: str) -> bool:
    """On this machine, or in its lab."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        at = ip_address(parts.hostname or "")
        return parts.scheme == "http" and any(at in ip_network(net) for net in ("127.0.0.0/8", "10.77.0.0/16"))
    return False


def key(vault: str) -> str:
    """The market's key; with the vault's password, which is asked for where that is wanted."""
    if not vault:
        if found := known_key():
            return found
        raise BadInput(
            f"the market needs a key, and {KEY} is not set",
            f"fix: export {KEY}=…  or: .venv/bin/ansible-vault create {_short(folder() / LOCKED)}, then --vault ask",
        )
    command = [str(Path(sys.executable).with_name("ansible-vault")), "view", "--ask-vault-pass", str(folder() / LOCKED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=None)
    if done.returncode:
        raise BadInput(f"{_short(folder() / LOCKED)} cannot be opened: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
