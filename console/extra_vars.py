"""NAME=VALUE, {…} and @FILE: as words by which Ansible takes its extra variables, and as their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.plan.settings.read_settings import read_yaml

SECRET = "motley_hub_token"  # noqa: S105  its name


def extra_vars(settings: list[str]) -> list[str]:
    """The words for ansible-playbook, of NAME=VALUE each in one piece and of its own files (@FILE) and JSON ({…})."""
    whole = [setting for setting in settings if setting.startswith(("@", "{"))]
    pairs = [setting for setting in settings if setting not in whole]
    for pair in pairs:
        if "=" not in pair:
            fix = f"fix: quote a value that has spaces: --set \"NAME='{pair} …'\"" if pair else "fix: --set NAME=VALUE"
            raise BadInput(f"'{pair}' is not NAME=VALUE", fix=fix)
    values = dict(pair.split("=", 1) for pair in pairs)
    if SECRET in values:
        fix = "fix: HF_TOKEN=… before the command, or lock it in the inventory (docs/training.md)"
        raise BadInput(f"{SECRET}: whoever is on this computer can read the words of a command", fix=fix)
    together = [json.dumps(values, ensure_ascii=False)] if values else []
    return [word for setting in [*whole, *together] for word in ("-e", setting)]


def values_of(settings: list[str], *, read_files: bool = False) -> dict[str, Any]:
    """What NAME=VALUE, {…} and @FILE set, the later over the earlier."""
    extra_vars(settings)  # refuses what is none
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if setting.startswith("{"):
            values |= from_json(setting)
        elif setting.startswith("@"):
            values |= read_yaml(Path(setting[1:]), "file") if read_files else {}
        else:
            values[name] = value
    return values


def from_json(setting: str) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(setting)
    except ValueError as error:
        raise BadInput(f"'{setting}' is not JSON: {error}", fix='fix: --set \'{"NAME": "VALUE"}\'') from None
    return values
