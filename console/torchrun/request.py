"""What a person asked `./motley torchrun` for, checked before anything is connected to: the script, and its folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from train.errors import BadInput
from train.files import size_and_hash
from train.plan.home_folder import refuse_home
from train.plan.launch.torchrun import Script
from train.plan.run_name import check_name

LIMIT_BYTES, LIMIT_FILES = 100_000_000, 5_000
"""The limits of a script's folder: it goes to every node each time. Data sets have a place of their own there."""
USAGE = "./motley torchrun train.py --lr 0.1"


def read(words: list[str], *, module: str = "", run: str = "") -> Script:
    """`words`: the script and its arguments as typed; of a module its arguments alone."""
    if run:
        check_name("run", run)
    if module:
        return Script(name=module, arguments=words, is_module=True, run=run)
    if not words:
        raise BadInput("torchrun wants a script", fix=f"for example: {USAGE}")
    file = Path(words[0])
    if not file.is_file():
        folder_note = ": that is a folder" if file.is_dir() else ""
        fix = f"Motley's own options come before the script: {USAGE}"
        raise BadInput(f"there is no script {file.absolute()}{folder_note}", fix=fix)
    folder = file.absolute().parent
    refuse_home(folder)
    try:
        files = {str(path.relative_to(folder)): size_and_hash(path) for path in travelling(folder)}
    except OSError as wrong:
        fix = "a script's folder is brought to every node: let yourself read it, or take it out of there"
        raise BadInput(f"{wrong.filename} cannot be read: {wrong.strerror}", fix=fix) from None
    return Script(name=file.name, arguments=words[1:], folder=str(folder), files=files, run=run)


def split(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError as wrong:
        raise BadInput(f"script: {wrong}") from None


def travelling(folder: Path) -> list[Path]:
    """The folder's files but hidden ones, caches and environments; BadInput where it is too much for every node."""
    files, sizes = [], dict[str, int]()
    for path in plain_files(folder):
        files.append(path)
        top = path.relative_to(folder).parts[0]
        sizes[top] = sizes.get(top, 0) + path.stat().st_size
        if sum(sizes.values()) > LIMIT_BYTES or len(files) > LIMIT_FILES:
            largest = max(sizes, key=lambda name: sizes[name])
            raise BadInput(
                f"{folder} has more than {LIMIT_BYTES / 1e6:.0f} MB or {LIMIT_FILES} files, as {largest}: "
                "a script's folder is brought to every node",
                fix="put the script, and what it imports, in a folder of its own; its data is sent to the nodes",
            )
    return files


def plain_files(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        left_out = [name for name in folders if name.startswith(".") or name == "__pycache__" or is_env(Path(at, name))]
        folders[:] = sorted(set(folders) - set(left_out))
        yield from (path for name in sorted(names) if not name.startswith(".") and (path := Path(at, name)).is_file())


def is_env(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists()
