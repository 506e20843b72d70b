# MIT License, see LICENSE
"""Every version of a node that must or may agree with the others'. Reads files only: importing torch takes seconds."""

from __future__ import annotations

from pathlib import Path

from ..train import nvidia_driver
from ..train.versions import content_hash, of_machine, package_hash
from . import env_files, graphics
from .env_record import read_record
from .pass_files_on import read_memo


def collect(home: Path, packages: list[str], *, full: bool = False, write: bool = True) -> dict[str, str | None]:
    code = home / "code/train"
    kept = {"model": home / "models/base", "data": home / "data/processed"}
    return {
        **of_machine((home / "env").glob("lib/python*/site-packages"), packages),
        "environment": environment(home / "env", full=full, write=write),
        **({"driver": "not loaded"} if card_without_driver() else {}),
        "train": package_hash(code) if code.is_dir() else None,
        **{
            f"{kind} {path.name}": content_hash(path, None if full else read_memo(path))
            for kind, parent in kept.items()
            for path in folders(parent)
        },
    }


def card_without_driver() -> bool:
    """What has no card may do without a driver; a card that its owner has not switched off may not."""
    return not nvidia_driver.loaded() and bool(graphics.nvidia_cards()) and not graphics.switched_off()


def environment(env: Path, *, full: bool, write: bool) -> str | None:
    """The environment's lock, and what is no longer as it was installed."""
    if not env.exists():
        return None
    record = read_record(env)
    if record is None:
        return "not Motley's"
    drift = env_files.look(env, record["packages"], full=full, write=write)
    return f"{record['lock']}, {drift}" if drift else record["lock"]


def folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir() and not path.name.startswith("."))
