"""Brings the results of a run home: adapter or model once, hashes compared, and each node's event logs; recorded steps
of all nodes (`profile`) become one picture.

python -m console fetch [--run NAME] [--inventory FOLDER]
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypedDict

from console.command_line import commands_as_typed
from console.infra.node import Node, Silent, ask_all, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt
from console.processes import end_group
from console.text_layout import counted, in_place, progress_bar, say
from train.errors import BadInput
from train.files import DISK_FULL
from train.plan.machines.nodes import gb
from train.plan.run_name import RULE, is_name
from train.runlog import merge_traces, paths

RESULTS = Path(__file__).parents[1] / "results"
RECEIPT = "receipt.json"
SHOWN_AFTER_S = 1.0


class Receipt(TypedDict):
    """What was fetched, with the hash of each file on each node; receipt.json has who had the result, too."""

    run: str
    time: str
    nodes: dict[str, dict[str, str]]
    silent: dict[str, str]
    differ: list[str]
    typed: dict[str, str]


def fetch(inventory: Inventory, run: str, results: Path = RESULTS) -> int:
    """Brings a run to results/RUN: adapter or model once, hashes compared; each node's event logs."""
    nodes = from_inventory(inventory)
    run = run or newest(nodes)
    if run and not is_name(run):
        say(no_name(run))
        return 2
    nodes = [part for node in nodes for part in node.parts(run)]
    answers, silent = ask_all(nodes, lambda node: node.files(run), doing="hashing what is on")
    files = {name: answer["files"] for name, answer in answers.items() if answer["files"]}
    if not files:
        say(f"no node that answers has run '{run}'" if run else "there is no run to fetch")
        for name, reason in silent.items():
            say(f"  {name}  {reason}")
        return 1
    made = made_in(run, files)
    below = f"results/{run}/{made}/"
    whole = [name for name, hashes in files.items() if any(path.startswith(below) for path in hashes)]
    differ = disagreeing(below, {name: files[name] for name in whole})
    first = (whole or list(files))[0]
    folder = results / run
    with interrupt.changing():
        counts = {
            node.name: bring_or_say(node, run, folder, files[node.name], results=node.name == first)
            for node in nodes
            if node.name in files
        }
    receipt: Receipt = {
        "run": run,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "nodes": files,
        "silent": silent,
        "differ": differ,
        "typed": commands_as_typed.given(),
    }
    whose = {f"{made}_from": whole[0] if whole else "", f"{made}_same_on": [] if differ else whole}
    (folder / RECEIPT).write_text(json.dumps({**receipt, **whose}, indent=1) + "\n")
    scripts = [name for name, answer in answers.items() if answer.get("script")]
    for line in fetched_lines(receipt, folder, counts, whole, script_from=first if scripts else "", made=made):
        say(line)
    for line in trace_lines(folder):
        say(line)
    return 1 if differ or -1 in counts.values() else 0


def made_in(run: str, files: dict[str, dict[str, str]]) -> str:
    """adapter or model, as the nodes have it; adapter where none has either yet."""
    paths_of_all = [path for hashes in files.values() for path in hashes]
    made = (name for name in paths.MADE if any(path.startswith(f"results/{run}/{name}/") for path in paths_of_all))
    return next(made, paths.ADAPTER)


def fetched_lines(
    receipt: Receipt,
    folder: Path,
    counts: dict[str, int],
    whole: list[str],
    *,
    script_from: str = "",
    made: str = "adapter",
) -> list[str]:
    same = "NOT the same on" if receipt["differ"] else "the same on"
    result = f"{folder}/{made}  {same} {', '.join(whole)}" if whole else "none yet: the run is not done"
    if whole and counts.get(whole[0], 0) < 0:
        result = f"did not come whole from {whole[0]}"
    events = ", ".join(f"{name} ({counted(count, 'file')})" for name, count in counts.items() if count >= 0)
    script = f"  results   what the script wrote to $MOTLEY_RESULTS on {script_from}"
    return [
        f"run {receipt['run']} → {folder}",
        script if script_from else f"  {made:<9} {result}",
        f"  events    {events}",
        *(f"  {name}  {reason}: not fetched" for name, reason in receipt["silent"].items()),
        *(f"  ✗ {path} differs between the nodes" for path in receipt["differ"]),
    ]


def trace_lines(folder: Path) -> list[str]:
    try:
        merged = merge_traces.merge(folder)
        lines = merge_traces.words(merged) if merged else []
    except BadInput as wrong:
        lines = str(wrong).splitlines()
    return [f"  {'' if number else 'trace':<9} {line}" for number, line in enumerate(lines)]


def no_name(run: str) -> str:
    """Why this names no run, whether it was typed or a node reports it: it would be a folder here."""
    return f"{run!r} cannot name a run: {RULE}\nfix: ./motley runs shows them; then --run NAME"


def newest(nodes: list[Node]) -> str:
    """The name of the newest of all runs that nodes report; the name is not checked."""
    answers, _ = ask_all(nodes, lambda node: node.runs())
    runs = [(facts["time"], name) for answer in answers.values() for name, facts in answer["runs"].items()]
    return max(runs)[1] if runs else ""


def disagreeing(below: str, files: dict[str, dict[str, str]]) -> list[str]:
    """Files that are not the same on all, but for two: an older Motley's adapter_config.json names the folder of the
    node's own base model; the card of a node that came back at the end lacks what was measured."""
    paths = dict.fromkeys(path for hashes in files.values() for path in hashes if path.startswith(below))
    alike = [path for path in paths if not path.endswith(("/adapter_config.json", "/README.md"))]
    return [path for path in alike if len({hashes.get(path) for hashes in files.values()}) > 1]


def bring_or_say(node: Node, run: str, folder: Path, files: dict[str, str], *, results: bool) -> int:
    """Does what bring() does; -1 also where the node stops sending or the disk is full, and the others are fetched."""
    try:
        return bring(node, run, folder, files, results=results)
    except (Silent, tarfile.TarError):
        say(f"  ✗ {node.name}: it stopped sending\n    fix: the same command again, once it answers")
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        say(f"  ✗ the disk of {folder} is full\n    fix: make room, or --results FOLDER on another disk; then again")
    return -1


def bring(node: Node, run: str, folder: Path, files: dict[str, str], *, results: bool) -> int:
    """Unpack what the node packs; -1 where a file arrives other than it was. Its own logs go below nodes/NAME."""
    process = node.fetch(run, made=results)
    assert process.stdout
    count = 0
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                target = place_of(member.name, run, node.name, results=results)
                source = archive.extractfile(member) if member.isfile() else None  # a link leads back, or elsewhere
                if target is None or source is None:
                    continue
                path = folder / target
                path.parent.mkdir(parents=True, exist_ok=True)
                with draft_of(path) as draft, arriving(f"  {node.name}  {path.name}", member.size) as show:
                    digest = written(source, draft, show)
                    moving = member.name.endswith((".jsonl", "agent.json"))  # a run that is running appends to these
                    if moving or digest == files.get(member.name):
                        draft.replace(path)
                        count += 1
                        continue
                say(f"  ✗ {node.name}: {member.name} did not arrive as it was")
                return -1
    finally:
        end_group(process)
    return count


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Gives a draft to write beside `path` and put in its place; a leftover, as of a broken stream, is deleted."""
    draft = path.with_name(f".{path.name}.new")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def arriving(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Shows the progress of a file; gives the function to tell how many bytes of it have come."""
    began = time.monotonic()
    with in_place() as show:

        def tell(come: int) -> None:
            if time.monotonic() - began >= SHOWN_AFTER_S:
                show(f"{what}  {progress_bar(come / size)}  {gb(come)} of {gb(size)}")

        yield tell


def written(source: IO[bytes], file: Path, show: Callable[[int], None]) -> str:
    """The hash of what was written; a model may be larger than the memory of this machine."""
    digest = hashlib.sha256()
    with file.open("wb") as out:
        while part := source.read(1 << 20):
            digest.update(part)
            out.write(part)
            show(out.tell())
    return digest.hexdigest()


def place_of(name: str, run: str, node: str, *, results: bool) -> Path | None:
    """Where a file goes, below results/RUN here; None for what is not wanted of this node, or lies outside."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    made, logs = paths.results(Path(), run), paths.logs(Path(), run)
    if path.is_relative_to(made):
        inner = path.relative_to(made)
        return inner if results and inner.parts[:1] != (paths.NODES,) else None  # those are of the nodes themselves
    if path.is_relative_to(logs):
        return Path(paths.NODES) / node / path.relative_to(logs)
    return Path(paths.NODES) / node / path.name
