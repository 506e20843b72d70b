# MIT License, see LICENSE
"""What runs leave in a node's folder: which there are, how far they came, and what is worth bringing home."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tarfile
from pathlib import Path

from ..train.runlog.last_launch import last_launch
from ..train.runlog.paths import AGENT, EVENTS, MEMBERS, MEMORY, PIECES, SETTINGS, checkpoints, logs, results
from ..train.runlog.tail import Tail, events_of
from .files import read_json
from .node_replies import AgentView, Event

TAIL_BYTES = 1 << 18


def launched_start(folder: Path) -> Event:
    """The newest start of a run so long that it is no longer in the end of its event log."""
    starts: list[bytes] = []
    with contextlib.suppress(OSError), (folder / EVENTS).open("rb") as file:
        starts = [line for line in file if line.startswith(b'{"event": "start"') and line.endswith(b"\n")]
    return next((event for event, _ in reversed(events_of(starts))), {})


def named_run(home: Path) -> str:
    return last_launch(home).run or newest_run(home)


def known_runs(home: Path) -> list[str]:
    """The runs of which there are event logs or checkpoints."""
    return sorted({path.name for top in (checkpoints, logs) for path in top(home, "").glob("[!.]*") if path.is_dir()})


def newest_run(home: Path) -> str:
    files = [file for name in (EVENTS, MEMBERS) for file in logs(home, "").glob(f"*/{name}")]
    return max(files, key=lambda file: file.stat().st_mtime).parent.name if files else ""


def newest_checkpoint(home: Path, run: str) -> int:
    if not run:
        return 0
    if (pieces := checkpoints(home, run) / PIECES).exists():
        return pieces.read_bytes().count(b"\n")
    names = [path.name for path in checkpoints(home, run).glob("step-*")]
    return max((int(name[5:]) for name in names if name[5:].isdigit()), default=0)


def saving_s(home: Path, run: str) -> float:
    """How long its workers may take to save, as its agent says: by what there is to save."""
    return agent_view(home, run).get("saves_s") or 0.0


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0


def kept_files(home: Path, run: str) -> list[Path]:
    """What is worth bringing home: results, event logs, settings; no checkpoint, no base model, no agent's memory."""
    tops = [results(home, run), logs(home, run)]
    files = [path for top in tops for path in sorted(top.rglob("*")) if path.is_file()]
    return [path for path in files if not path.name.startswith(".") and path.name != MEMORY] + [
        path for path in [home / SETTINGS] if path.is_file() and named_run(home) == run
    ]


def pack(home: Path, run: str, made: bool = True) -> None:
    """`made`: the result as well, which is the same on all nodes and may be large."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in kept_files(home, run):
            if not made and path.is_relative_to(results(home, run)):
                continue
            archive.add(path, arcname=str(path.relative_to(home)), recursive=False)


def more(home: Path, run: str, offset: int, log: str = EVENTS) -> None:
    """The whole lines of an event log from there on; of a shorter one all. Nothing where there is none."""
    file = logs(home, run) / log
    if not file.exists():
        return
    offset = offset if offset <= file.stat().st_size else 0
    with file.open("rb") as stream:
        stream.seek(offset)
        data = stream.read()
    sys.stdout.buffer.write(json.dumps({"offset": offset}).encode() + b"\n" + data[: data.rfind(b"\n") + 1])


def part(home: Path, file: str, offset: int) -> None:
    """The rest of a file of an export from there on."""
    with (home / "exports" / file).open("rb") as stream:
        stream.seek(offset)
        shutil.copyfileobj(stream, sys.stdout.buffer, 1 << 20)


def end_of(log: Path) -> Tail:
    return Tail(log, last_bytes=TAIL_BYTES)


def agent_view(home: Path, run: str) -> AgentView:
    """How the run's agent says it is; empty where none has said anything."""
    view: AgentView = read_json(logs(home, run) / AGENT)
    return view
