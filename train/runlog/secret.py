"""config/secret.json (0600): what nobody else may know of a launch. Standard library alone: it is sent along."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..files import write_atomic
from .paths import QUEUE, SECRET


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    token: str = ""
    """Agents that do not know it are of another launch, or strangers."""
    messages: str = ""
    """The address of motley_notify, where the nodes send; empty where they send nothing."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Secret:
        facts = json.loads(text)
        return cls(token=str(facts.get("token", "")), messages=str(facts.get("messages", "")))


def secret_of(file: Path) -> Secret:
    """An empty one where there is none, or it is torn."""
    try:
        return Secret.from_json(file.read_text())
    except (OSError, ValueError, AttributeError):
        return Secret()


def forget_messages(home: Path) -> bool:
    """The nodes are not to send any more, of the run that is here and of those that wait. Whether they were to."""
    files = [home / SECRET, *home.glob(f"{QUEUE}/*/{SECRET}")]
    secrets = {file: secret for file in files if (secret := secret_of(file)).messages}
    for file, secret in secrets.items():
        write_atomic(file, replace(secret, messages="").to_json().encode(), mode=0o600)
    return bool(secrets)
