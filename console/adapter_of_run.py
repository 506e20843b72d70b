"""`adapter=RUN`: the adapter of a run of these nodes, brought here from one of them, where a launch reads it; and its
base, compared by hash with the one that would be sent."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.fetch import bring, disagreeing
from console.hub import FETCHED
from console.infra.node import Node, Silent, ask_all
from train.errors import BadInput
from train.layout import BASE_MODELS
from train.plan.launch.decide import Decided
from train.plan.model import adapters
from train.plan.model.hashes import base_hash
from train.plan.run_name import is_name
from train.runlog import paths


def run_of(values: dict[str, Any]) -> str:
    """The run that is named; empty where a folder, an id of the hub or nothing is."""
    name = str(values.get("adapter") or "")
    return name if is_name(name) and not Path(name).expanduser().exists() else ""


def bring_adapter(run: str, nodes: Sequence[Node], home: Path = FETCHED) -> Path:
    """Its folder here, with what the nodes have now: a run that was continued has made another."""
    parts = [part for node in nodes for part in node.parts(run)]
    answers, silent = ask_all(parts, lambda node: node.files(run), doing=f"looking for the adapter of {run} on")
    below = f"results/{run}/{paths.ADAPTER}/"
    files = {name: answer["files"] for name, answer in answers.items()}
    having = {name: hashes for name, hashes in files.items() if any(path.startswith(below) for path in hashes)}
    if not having:
        raise BadInput(why_none(run, any(files.values()), silent), fix="fix: ./motley runs shows which are done")
    if differ := disagreeing(below, having):
        what = f"adapter: {Path(differ[0]).name} of {run} is not the same on {', '.join(having)}"
        raise BadInput(what, fix=f"fix: ./motley fetch --run {run} shows it; then name a folder as adapter")
    node = next(part for part in parts if part.name in having)
    try:
        is_whole = bring(node, run, paths.results(home, run), having[node.name], results=True) >= 0
    except (Silent, tarfile.TarError):
        is_whole = False
    if not is_whole:
        what = f"the adapter of {run} did not come whole from {node.name}"
        raise BadInput(what, fix="fix: type the same command again")
    return paths.results(home, run) / paths.ADAPTER


def require_base(found: Decided, home: Path = FETCHED) -> None:
    """BadInput where the base that lies here for the nodes is another one. What is not here each node compares."""
    folder, adapter = home / BASE_MODELS / found.model.folder_name, found.settings.get("adapter")
    if adapter and found.model.folder_name and folder.is_dir():
        adapters.require_hash(adapters.read(Path(adapter)), base_hash(folder), found.model.name)


def why_none(run: str, is_known: bool, silent: dict[str, str]) -> str:
    off = "".join(f"; {name}: {reason}" for name, reason in silent.items())
    if is_known:
        return f"adapter: run '{run}' has made none: it is not done, or trains another kind of thing{off}"
    return f"adapter: no node knows a run '{run}', and there is no such folder here{off}"
