"""What a person asked `launch.yml` for, checked before anything is connected to.

The rules of a setting are train/plan/config.py's: `python -m train check` is asked, as a program. What only a launch
knows (which nodes, follow, queue) is checked here. Pure but for that one call.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.inventory.finding import nearest
from console.inventory.keys import FOLDER_RULE, KEYS, is_folder, role_keys

ROOT = Path(__file__).parents[1]
FETCHED = Path(os.environ.get("MOTLEY_CACHE") or "~/.cache/motley").expanduser() / "fetched"
"""The controller's own home of `python -m train`: what it fetched for the nodes."""
SWITCHES = {"follow": True, "queue": False}
LAUNCH_ONLY = ("nodes", *SWITCHES)
NOT_OURS = ("motley_", "ansible_", "awx_", "tower_")
"""Motley's own are checked by `unknown_inner`; AWX adds its own to every job."""


class Refused(Exception):
    """Each finding, and what mends it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    values: dict[str, Any]
    """Settings that were given, as given."""
    nodes: list[str]
    """In the inventory's order."""
    named_nodes: bool
    """Whether the nodes were named, or are simply all."""
    follow: bool = True
    queue: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    """What `python -m train check` tells."""


def read(
    variables: dict[str, Any], cluster: list[str], limit: list[str] | None = None, homes: Iterable[str] = ()
) -> Asked:
    """From Ansible's extra variables; all findings at once. `limit`: the hosts of --limit, as good as `nodes`."""
    own = {name: value for name, value in variables.items() if not name.startswith(NOT_OURS)}
    cut_off = own.pop("_raw_params", "")
    values = {name: value for name, value in own.items() if name not in LAUNCH_ONLY}
    findings = [f"'{cut_off}' has no name: -e cuts at spaces\nfix: -e '{{\"NAME\": \"VALUE\"}}'"] if cut_off else []
    findings += unknown_inner(variables)
    nodes, wrong_nodes = chosen_nodes(own.get("nodes"), cluster, cluster if limit is None else limit)
    switches = {name: truth(own.get(name), default) for name, default in SWITCHES.items()}
    findings += wrong_nodes
    findings += [f"motley_home: {home!r} is not {FOLDER_RULE}" for home in dict.fromkeys(homes) if not is_folder(home)]
    findings += [f"{name}: '{own[name]}' is neither true nor false" for name, on in switches.items() if on is None]
    required = "" if str(values.get("resume", "auto")) not in ("auto", "never") else "model"
    about, wrong_values = check_values(values, required)
    findings = wrong_values + findings
    if findings:
        raise Refused("\n".join([*findings, "all variables, with an example of each: docs/reference.md"]))
    return Asked(
        values=values,
        nodes=nodes,
        named_nodes=own.get("nodes") not in (None, "", "all") or limit is not None,
        follow=bool(switches["follow"]),
        queue=bool(switches["queue"]),
        about=about,
    )


def as_words(pairs: list[str], more: str) -> list[str]:
    """For ansible-playbook, of NAME=VALUE each in one piece, and of several in one text, quoted as in a shell."""
    further = shlex.split(more)
    files = [word for word in further if word.startswith("@")]
    wrong = [word for word in [*pairs, *further] if "=" not in word and word not in files]
    if wrong:
        raise Refused(f"'{wrong[0]}' is not NAME=VALUE\nfix: quote a value that has spaces: SET=\"{wrong[0]}='…'\"")
    values = dict(pair.split("=", 1) for pair in [*further, *pairs] if pair not in files)
    together = ["-e", json.dumps(values, ensure_ascii=False)] if values else []
    return [*(word for file in files for word in ("-e", file)), *together]


def check_values(values: dict[str, Any], required: str = "") -> tuple[dict[str, Any], list[str]]:
    words = ["--values", json.dumps(values, default=str), "--also", ",".join(LAUNCH_ONLY), "--required", required]
    told, failures = train("check", *words, "--what", "variable")
    return told, failures


def train(*words: str, env: dict[str, str] | None = None) -> tuple[dict[str, Any], list[str]]:
    """`python -m train … --json` here on the controller: what it tells, or its findings."""
    command = [sys.executable, "-m", "train", *words, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment() | (env or {})
    )
    return told(done.stdout, done.stderr)


def told(stdout: str, stderr: str) -> tuple[dict[str, Any], list[str]]:
    lines = stdout.strip().splitlines()
    try:
        answer = dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        return {}, [f"the training package did not answer: {(stderr.strip() or 'no word')[-300:]}"]
    return answer, [] if "nodes" in answer or answer.get("ok") else [str(line) for line in answer["failures"]]


def environment() -> dict[str, str]:
    """Its home is the controller's cache: what a node keeps in ~/ai-cluster on this very machine is not meant."""
    return dict(os.environ) | {"PYTHONPATH": str(ROOT), "MOTLEY_HOME": str(FETCHED), "PYTHONDONTWRITEBYTECODE": "1"}


def chosen_nodes(words: Any, cluster: list[str], limit: list[str]) -> tuple[list[str], list[str]]:
    """Those that take part, and what is wrong with the words."""
    if words in (None, "", "all"):
        return [name for name in cluster if name in limit], []
    names = [str(word) for word in words] if isinstance(words, list) else str(words).replace(",", " ").split()
    wrong = [
        f"nodes: there is no '{name}' in the inventory, which has {', '.join(cluster)}"
        for name in names
        if name not in cluster
    ]
    wrong += [f"nodes: --limit leaves '{name}' out" for name in names if name in cluster and name not in limit]
    return [name for name in cluster if name in names], wrong


def truth(value: Any, default: bool) -> bool | None:
    yes, no = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
    word = str(default if value is None else value).lower()
    return True if word in yes else False if word in no else None


def unknown_inner(variables: dict[str, Any]) -> list[str]:
    """Motley's own variables may be given as well; a misspelled one would be silently ignored by Ansible."""
    known = {**role_keys(ROOT / "roles"), **KEYS}
    given = [name for name in variables if name.startswith("motley_") and name not in known]
    return [f"unknown variable '{name}': {nearest(name, known)}" for name in given]
