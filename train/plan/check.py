"""`python -m train check`: the settings of a run, checked before anything is connected to, fetched or started.

    python -m train check --values '{"model": "llama2-7b", "max_steps": 40}' --also nodes,follow --json

All findings are told at once. With --json it also tells what model and data set were taken for, and which settings
decide the loss curve. --also names words that the caller knows besides the settings; --required what must be given.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from train.errors import BadInput
from train.plan.catalogue import Dataset, Model, catalogue, resolve_dataset, resolve_model
from train.plan.config import RunConfig, load_config, nearest

HERE_ONLY = ("home",)
"""Settings that belong to one machine and are no business of whoever launches on several."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--values", type=json.loads, default={}, help="setting → value, as JSON")
    parser.add_argument("--also", default="", help="further words that are no mistake, with commas")
    parser.add_argument("--required", default="", help="settings that must be given, with commas")
    parser.add_argument("--what", default="setting", help="what a setting is called in messages")


def main(args: argparse.Namespace) -> int:
    also = [word for word in args.also.split(",") if word]
    findings = check_names(args.values, also, args.what)
    values = {name: value for name, value in args.values.items() if name in settings()}
    findings += [] if findings else check_values(values, args.required)
    if findings:
        raise BadInput("\n".join(findings))
    config = load_config(values)
    model, data = resolve_model(config.model), resolve_dataset(config.dataset)
    told = {
        "given": {name: plain(getattr(config, name)) for name in values},
        "all": {name: value for name, value in config.scoped("math", "agree", "node").items() if name not in HERE_ONLY},
        "math": sorted(config.scoped("math")),
        "help": {spec.name: spec.metadata["help"] for spec in fields(RunConfig)},
        "model": about_model(model),
        "dataset": about_dataset(data),
    }
    print(json.dumps({"ok": True, **told}) if args.json else f"{model.reason}\n{data.reason}")
    return 0


def settings() -> list[str]:
    return [spec.name for spec in fields(RunConfig) if spec.name not in HERE_ONLY]


def check_names(values: dict[str, Any], also: list[str], what: str) -> list[str]:
    known = [*settings(), *also]
    return [
        f"unknown {what} '{name}'{nearest(name, known).replace(', did', ' — did')}"
        for name in values
        if name not in known
    ]


def check_values(values: dict[str, Any], required: str) -> list[str]:
    """Each by itself, so that two mistakes are told at once; then together."""
    findings = [
        f"{name}: a value is missing{example(name)}" for name in required.split(",") if name and name not in values
    ]
    for name, value in values.items():
        findings += finding(load_config, {name: value})
    findings += [] if findings else finding(load_config, values)
    resolvers: dict[str, Callable[[str], object]] = {"model": resolve_model, "dataset": resolve_dataset}
    for name, resolve in resolvers.items():
        if name in values:
            findings += finding(resolve, str(values[name]))
    return findings


def finding(check: Callable[[Any], object], value: Any) -> list[str]:
    try:
        check(value)
    except BadInput as wrong:
        return [str(wrong)]
    return []


def example(name: str) -> str:
    kind = {"model": "models", "dataset": "datasets"}.get(name)
    return f"; the catalogue has {' '.join(catalogue()[kind])}" if kind else ""


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def about_model(model: Model) -> dict[str, Any]:
    names = ("name", "local_name", "source", "reason", "hub", "hub_4bit", "embedded", "gated")
    folder = str(model.folder.resolve()) if model.source == "folder" and model.folder else ""
    return {name: getattr(model, name) for name in names} | {"folder": folder}


def about_dataset(data: Dataset) -> dict[str, Any]:
    names = ("name", "local_name", "listed", "reason", "hub", "embedded")
    return {name: getattr(data, name) for name in names} | {"file": str(data.file.resolve()) if data.file else ""}
