"""The README of each role, from its meta/argument_specs.yml: python -m tests.support.role_pages"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[2] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir())


def page(role: str) -> str:
    entries = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    lines = [f"# {role}", "", f"{entries['main']['short_description']}."]
    if (ROLES / role / "tasks/undo.yml").exists():
        phase = role.removeprefix("motley_")
        lines += [
            "",
            f"What it changes, `./motley undo --phase {phase}` (`playbooks/undo.yml --tags {phase}`) puts back.",
        ]
    for name, entry in entries.items():
        if name != "main":
            lines += ["", f"## tasks_from: {name}", "", f"{entry['short_description']}."]
        if options := entry.get("options"):
            lines += [
                "",
                "| variable | type | default | |",
                "|---|---|---|---|",
                *(row(*option) for option in options.items()),
            ]
    return "\n".join(lines) + "\n"


def row(name: str, option: dict[str, Any]) -> str:
    default = (
        "required" if option.get("required") else f"`{json.dumps(option['default'])}`" if "default" in option else ""
    )
    return f"| `{name}` | {option['type']} | {default} | {option['description']} |"


if __name__ == "__main__":
    for role in NAMES:
        (ROLES / role / "README.md").write_text(page(role))
