"""A file that is a run: the launch variables as YAML, one a line. `-f` reads it, `./motley runs --as-file` writes it.

    model: qwen3-4b
    dataset: ./notes.jsonl
    epochs: 3

It is a file of extra variables of Ansible's as well: `ansible-playbook launch.yml -e @run.yml` asks for the same run.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from console import strict_yaml
from console.command_line.where_typed import PLACES, moved
from console.extra_vars import SECRET
from console.launch_request import LAUNCH_ONLY, NOT_OURS, SWITCHES, unknown_inner
from train.errors import BadInput
from train.plan.settings import request
from train.plan.settings.read_settings import SETTINGS, coerce

FIRST = ("model", "dataset", "recipe", "run")
"""What a reader looks for at the top."""
PLAIN = (str, int, float, bool, datetime.date)
"""A date is what YAML makes of 2026-11-30, which may be the name of a run."""


def read(file: Path, also: Iterable[str] = ()) -> dict[str, Any]:
    """Its variables; files that it names lie beside it, or else where they do on the command line. `also`: further
    names. BadInput where a name is none, before anything is connected to."""
    values = {name: _place(name, value, file.parent) for name, value in _lines(file).items()}
    settings = [name for name in values if not name.startswith(NOT_OURS)]
    findings = request.unknown(settings, request.known_names(values, [*LAUNCH_ONLY, *also]), "variable")
    findings += unknown_inner(values)
    if findings:
        raise BadInput("\n".join(findings), f"file: {file}")
    if SECRET in values:
        raise BadInput(f"{SECRET}: a run's file is no place for it", f"file: {file}", "fix: HF_TOKEN=… ./motley launch")
    return values


def _lines(file: Path) -> dict[str, Any]:
    """What stands in it, where each name has one value or a list of them."""
    try:
        values = strict_yaml.load(file) or {}
    except OSError as wrong:
        raise BadInput(f"the run's file cannot be read: {wrong.strerror}", f"file: {file}") from None
    except strict_yaml.YamlError as wrong:
        raise BadInput(wrong.what, f"file: {wrong.where}", f"fix: {wrong.fix}") from None
    if not isinstance(values, dict):
        raise BadInput("the run's file holds no variables", f"file: {file}", "fix: write lines like  model: qwen3-4b")
    for name, value in values.items():
        if isinstance(value, strict_yaml.Vaulted):
            raise BadInput(f"{name}: it is locked", f"file: {file}", f"fix: --set @{file} --vault ask, instead of -f")
        if not all(isinstance(one, PLAIN) for one in (value if isinstance(value, list) else [value])):
            what = "has no value" if value is None else "is neither a value nor a list of values"
            raise BadInput(f"{name}: it {what}", f"file: {file}", f"fix: {name}: VALUE, or leave it out")
    return {str(name): str(value) if isinstance(value, datetime.date) else value for name, value in values.items()}


def _place(name: str, value: Any, folder: Path) -> Any:
    if name == "dataset" and isinstance(value, list):
        value = ",".join(map(str, value))
    return moved(name, value, folder.resolve()) if name in PLACES and isinstance(value, str) else value


def given_way(values: Mapping[str, Any], typed: Mapping[str, Any]) -> list[str]:
    """A line for each variable of the file that the command line has set otherwise."""
    return [
        f"{name}={typed[name]} as typed, not {value} of the file"
        for name, value in values.items()
        if name in typed and _as_typed(typed[name]) != _as_typed(value)
    ]


def _as_typed(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_as_typed, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_variables(asked: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch is kept with, to be written as a file later: all that was asked for, and nothing that was decided.

    `asked`: launch_request.Asked as data. `given`: the settings that the run has from a person; of a run that
    continues, those of its first launch too.
    """
    values = asked["values"]
    variables: dict[str, Any] = {name: values.get(name, given[name]) for name in given if name != "resume"}
    if "run" not in values:
        variables.pop("run", None)  # it was found for this run, as a name that was free
    if asked["named_nodes"]:
        variables["nodes"] = ",".join(asked["nodes"])
    if asked["not_before"]:
        variables["at"] = time.strftime("%H:%M", time.localtime(asked["not_before"]))
    variables |= {name: asked[name] for name in ("then", "report_to") if asked[name]}
    variables |= {name: asked[name] for name, usual in SWITCHES.items() if asked[name] != usual}
    return variables | dict(asked["of_infra"])


def as_text(launched: Mapping[str, Any], *, run: str) -> str:
    """The file, from what is kept of a launch. A node may have said it: it is one line each, as YAML quotes it."""
    asked = launched.get("asked") or {**launched.get("given", {})}
    names = [*(name for name in FIRST if name in asked), *(name for name in asked if name not in FIRST)]
    when = re.sub(r"[^\d:-]+", " ", str(launched.get("time", ""))[:16]).strip()
    lines = [f"# {run}, as it was launched {when}; again: ./motley launch -f THIS-FILE\n"]
    return "".join(lines + [yaml.safe_dump({name: _typed(name, asked[name])}, width=10**6) for name in names])


def _typed(name: str, value: Any) -> Any:
    """The value as YAML has it: on the command line all are words."""
    if name not in SETTINGS:
        return value == "true" if value in ("true", "false") else value
    typed = coerce(SETTINGS[name], value)
    return list(typed) if isinstance(typed, tuple) else typed
