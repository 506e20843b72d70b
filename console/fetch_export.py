"""Brings an export of a node here, to results/RUN/FORM: file by file, each verified by its hash. What has come of a
file when the connection breaks, or Ctrl-C comes, is kept, and the next call continues there.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import IO, Any, TypedDict

from console.fetch import arriving
from console.infra.node import Node, Silent
from console.playbook import interrupt
from console.processes import end_group
from console.text_layout import say
from train.files import DISK_FULL, file_hash
from train.plan.machines.nodes import gb

SPARE_BYTES = 1 << 26
"""What is left free: a disk that is full to the last byte stops more than this."""


class Made(TypedDict):
    """What `python -m train export --json` says."""

    folder: str
    files: dict[str, int]
    sha256: dict[str, str]


def fetch(node: Node, run: str, made: Made, results: Path) -> int:
    there = Path(made["folder"]).name
    folder = results / run / there
    sizes = {name: int(size) for name, size in made["files"].items() if Path(name).name == name}
    wanted = {name: size for name, size in sizes.items() if not is_here(folder / name, made["sha256"][name])}
    drafts = {name: draft_of(folder / name, made["sha256"][name]) for name in wanted}
    folder.mkdir(parents=True, exist_ok=True)
    need = sum(size - come(drafts[name]) for name, size in wanted.items())
    if (free := shutil.disk_usage(folder).free) < need + SPARE_BYTES:
        return no_room(f"{gb(need)} more are needed in {folder}, and {gb(free)} are free", node, made)
    try:
        for name, size in wanted.items():
            take(node, f"{run}/{there}/{name}", drafts[name], size)
            if file_hash(drafts[name]) != made["sha256"][name]:
                drafts[name].unlink()
                say(
                    f"✗ {node.name}: {name} did not arrive as it was\nfix: again: ./motley export --run {run} --to gguf"
                )
                return 1
            drafts[name].replace(folder / name)
    except (EOFError, Silent):
        part = gb(sum(come(draft) for draft in drafts.values()))
        say(f"{node.name} stopped sending after {part}: that is kept\nfix: again, and it continues there")
        return 1
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        return no_room(f"the disk of {folder} is full; what has come is kept", node, made)
    except KeyboardInterrupt:
        say("what has come is kept: the next call continues there")
        return interrupt.CODE
    say_how(folder, run, sizes)
    return 0


def no_room(what: str, node: Node, made: Made) -> int:
    fix = "fix: make room, or --results FOLDER on another disk; then again"
    say(f"{what}\n{fix}. It lies on {node.name}: {made['folder']}")
    return 1


def say_how(folder: Path, run: str, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        say(f"{size / 1e6:10.1f} MB  {folder / name}")
    say(f"next: cd {folder} && ollama create {run} -f Modelfile && ollama run {run}")


def is_here(path: Path, digest: str) -> bool:
    return path.is_file() and file_hash(path) == digest


def draft_of(path: Path, digest: str) -> Path:
    """The draft of a file. Its name says of which one: another does not continue it. Drafts of others are deleted."""
    draft = path.with_name(f".{path.name}.{digest[:12]}.part")
    for other in path.parent.glob(f".{path.name}.*.part"):
        if other != draft:
            other.unlink()
    return draft


def come(draft: Path) -> int:
    return draft.stat().st_size if draft.exists() else 0


def take(node: Node, file: str, draft: Path, size: int) -> None:
    """EOFError where less comes than there is."""
    begun = come(draft)
    process: subprocess.Popen[bytes] = node.exported(file, begun)
    assert process.stdout
    try:
        with draft.open("ab") as out, arriving(f"  {node.name}  {Path(file).name}", size) as show:
            append(process.stdout, out, show)
    finally:
        end_group(process)
    if come(draft) < size:
        raise EOFError


def append(source: IO[bytes], out: IO[bytes], show: Any) -> None:
    while part := source.read(1 << 20):
        out.write(part)
        show(out.tell())
