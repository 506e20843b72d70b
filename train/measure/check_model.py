"""`python -m train check-model`: whether a model trains exactly, shown on a miniature of it (train/proof).

    python -m train check-model --model FOLDER
    python -m train check-model --model - < config.json

Its weights are not needed. What was shown is kept below the cache by config and versions, and not shown again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

from train.plan.model.catalogue import HubConfig, config_of, read_config, resolve_model
from train.proof.admit_model import verdict_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a name, hub id or folder; - reads a config.json")


def main(args: argparse.Namespace) -> int:
    found = verdict_of(config_named(args.model))
    if args.json:
        print(json.dumps({"ok": True, "verdict": asdict(found)}))
    else:
        print(found.line)
    return 1 if found.refused else 0


def config_named(model: str) -> HubConfig:
    if model == "-":
        return cast(HubConfig, json.load(sys.stdin))
    known = resolve_model(model)
    if known.embedded and not known.folder:
        from train.models.model_files import model_folder

        return read_config(Path(model_folder(model)))
    return config_of(known)[0]
