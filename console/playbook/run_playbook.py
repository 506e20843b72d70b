"""Runs a playbook that prepares machines (not a launch: launch_playbook.py), shows it, and leaves a receipt.

The password goes from memory to Ansible's own prompts through a pseudo-terminal: it is on no disk, in no argument and
in no environment. Covered by tests/roles/test_bootstrap.py. Not covered: a machine whose memory others can read.
"""

from __future__ import annotations

import getpass
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from console import playbook_receipt
from console.infra import is_local
from console.inventory.read import Inventory
from console.playbook import interrupt, playbook_view
from console.playbook.ansible_events import AnsibleEvent, EventData
from console.playbook.playbook_progress import FINDING, Progress
from console.text_layout import counted, in_place
from train.safe_stdio import COLOUR, Drawing

ROOT = Path(__file__).parents[2]
SHOWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaybookRun:
    """What a person asked for."""

    verb: str
    playbook: str
    inventory: Inventory
    phase: str = ""
    limit: str = ""
    check: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)
    typed: str = ""
    """The command, where it is not `./motley VERB` with these words."""

    @property
    def command(self) -> str:
        phase = self.phase or ("all" if self.verb == "undo" else "")
        given = {f"--phase {phase}": phase, f"--nodes {self.limit}": self.limit, "--check": self.check}
        return self.typed or " ".join(["./motley", self.verb, *(words for words, value in given.items() if value)])


@dataclass(frozen=True, slots=True)
class Passwords:
    login: str
    sudo: str


def ask_passwords(inventory: Inventory) -> Passwords:
    """Asked once and kept in memory. MOTLEY_PASSWORD answers where nobody can; it is taken out of the environment."""
    far = [node for node in inventory.nodes.values() if not is_local(node)]
    users = dict.fromkeys(str(node["ansible_user"]) for node in far if "ansible_user" in node)
    if not users:  # a login node without one is reached by its owner's keys
        return Passwords("", "")
    user = "/".join(users)
    given = os.environ.pop("MOTLEY_PASSWORD", None)
    other = os.environ.pop("MOTLEY_SUDO_PASSWORD", None)
    login = given if given is not None else _ask(f"password for {user} (asked once, kept in memory): ")
    if os.environ.get("SUDO_PASSWORD") == "ask" and other is None:
        other = _ask(f"password of {user} for sudo: ")
    return Passwords(login, other if other is not None else login)


def _ask(question: str) -> str:
    return getpass.getpass(question) if sys.stdin.isatty() else ""


def run(request: PlaybookRun, passwords: Passwords, progress: Progress | None = None) -> int:
    """0: done on every node. 1: some node failed or was skipped. 130: stopped by Ctrl-C or SIGTERM.

    `progress` is filled with what each node did.
    """
    progress = progress or Progress()
    verbose = os.environ.get("VERBOSE", "") not in ("", "0")
    screen = Console(highlight=False, markup=False, file=Drawing(sys.stdout))  # type: ignore[arg-type]
    started = time.monotonic()
    work = request.inventory.state / "runs" / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}"
    try:
        with playbook_view.View(screen, progress, silent=verbose, check=request.check) as shown:
            rc = _ansible(request, passwords, work, progress, shown)
        log = _keep_log(work, request)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    whole = bool(progress.nodes) and rc == 0 and not any(n.off or n.failed for n in progress.nodes.values())
    seconds = time.monotonic() - started
    outcome = "check only" if request.check else "proven" if whole else "incomplete"
    data = playbook_receipt.as_data(
        request.verb, str(request.inventory.path), progress, outcome=outcome, seconds=seconds
    )
    page = playbook_receipt.write(request.inventory.state / "receipts", data, (passwords.login, passwords.sudo))
    for line in [
        *_summary(request, progress, seconds, rc, log),
        f"receipt  {short_path(page)}",
        *_next(request, whole),
    ]:
        playbook_view.show(screen, line)
    return rc if rc == interrupt.CODE else 0 if whole else 1


class Reader(Progress):
    """Keeps what nodes report under one key."""

    __slots__ = ("key", "reported")

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.reported: dict[str, Any] = {}

    def take(self, event: AnsibleEvent) -> None:
        super().take(event)
        data: EventData = event.get("event_data") or {}
        result: Mapping[str, Any] = data.get("res") or {}
        if self.key in result:
            self.reported[data["host"]] = result[self.key]


def read(request: PlaybookRun, passwords: Passwords, reader: Reader, name: str) -> Path:
    """A playbook that changes nothing and shows nothing; the log of its output."""
    work = request.inventory.state / "runs" / f"{name}-{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}"
    try:
        with in_place() as show:
            show(f"looking at {', '.join(request.inventory.nodes)} …")
            if _ansible(request, passwords, work, reader, None) == interrupt.CODE:
                raise KeyboardInterrupt
        return _keep_log(work, request)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ansible(
    request: PlaybookRun, passwords: Passwords, work: Path, progress: Progress, shown: playbook_view.View | None
) -> int:
    """Runs Ansible; returns its exit code, 130 where somebody stopped it."""
    from ansible_runner import run as run_ansible  # noqa: PLC0415  half a second, only where it is needed

    def on_event(event: AnsibleEvent) -> bool:
        progress.take(event)
        if shown:
            shown.update()
        return True

    work.mkdir(parents=True, mode=0o700)
    (work / "project").symlink_to(ROOT)
    words = ["--check", "--diff"] if request.check else []
    answers = {}
    if passwords.login:
        words += ["-k", "-K"]
        answers = {r"SSH password:\s*?$": passwords.login, r"BECOME password.*:\s*?$": passwords.sudo}
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with interrupt.Watch() as watch:
        done = run_ansible(
            private_data_dir=str(work),
            project_dir=str(ROOT),
            playbook=f"playbooks/{request.playbook}.yml",
            inventory=str(request.inventory.path.resolve()),
            limit=request.limit or None,
            tags=request.phase or None,
            extravars={"motley_contact_ask": False, **request.variables},  # its terminal is runner's own
            cmdline=" ".join(words) or None,
            passwords=answers,
            envvars={
                "ANSIBLE_DISPLAY_TRACEBACK": "error",  # into the log, and the exception's name into what we show
                "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "plugins/callback"),  # runner adds its own
            },
            suppress_env_files=True,  # else runner writes the passwords into env/passwords
            settings={"pexpect_use_poll": True, "pexpect_timeout": 1, "suppress_output_file": False},
            event_handler=on_event,
            quiet=not (shown and shown.silent),
            cancel_callback=watch.overdue,
        )
    return interrupt.CODE if watch.asked else int(done.rc)


def _keep_log(work: Path, request: PlaybookRun) -> Path:
    """Ansible's own output of the last run of each verb."""
    log = request.inventory.state / "logs" / f"{request.verb}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for stdout in work.glob("artifacts/*/stdout"):
        shutil.copyfile(stdout, log)
    return log


def _summary(request: PlaybookRun, progress: Progress, seconds: float, rc: int, log: Path) -> list[str]:
    lines: list[str] = []
    add = lines.append
    playbook_view.failures(progress, add)
    playbook_view.skipped(progress, add)
    nodes = progress.nodes.values()
    idle = [node.name for node in nodes if progress.broken_off and not node.off and not node.failed]
    if idle:
        add(f"– {', '.join(idle)}: not finished, because it failed elsewhere")
    good = sum(not node.off and not node.failed for node in nodes) - len(idle)
    changes = sum(node.changed for node in nodes)
    took = f"{seconds:.0f} s"
    if rc == interrupt.CODE:
        lines += stopped(progress, request.command)
    elif not nodes:
        lines += ["✗ Ansible did not get as far as any node:", *last_words(log), f"its log: {short_path(log)}"]
    elif rc and not any(node.failed for node in nodes):
        lines += [
            f"✗ Ansible ended with exit code {rc}{f' in {progress.phase}' if progress.phase else ''}:",
            *last_words(log),
        ]
        add(f"✗ {request.verb} · incomplete · {took} · Ansible's log: {short_path(log)}")
    elif request.check:
        add(f"check only: {counted(changes, 'change')} would be made on {good} of {len(nodes)} nodes · {took}")
        if rc:
            add(f"Ansible's log: {short_path(log)}")
    elif good == len(nodes) and rc == 0:
        add(f"✓ {request.verb} · {good} of {len(nodes)} nodes · {counted(changes, 'change')} · {took}")
    else:
        add(f"✗ {request.verb} · {good} of {len(nodes)} nodes are done · {took} · Ansible's log: {short_path(log)}")
    return lines


def why_not(progress: Progress, log: Path) -> list[str]:
    """Why a playbook did not report what it should have: the tasks that failed, or how Ansible ended."""
    lines: list[str] = []
    playbook_view.failures(progress, lines.append)
    return lines or last_words(log)


def last_words(log: Path) -> list[str]:
    """Ansible's error, where nothing of it came as a task's result; else how its log ends."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.rstrip() for line in COLOUR.sub("", text).splitlines() if line.strip()]
    error = next((place for place, line in enumerate(lines) if "ERROR" in line), max(0, len(lines) - SHOWN))
    return [f"    {line}" for line in lines[error : error + SHOWN]] or ["    it printed nothing"]


def _next(request: PlaybookRun, whole: bool) -> list[str]:
    if not whole or request.verb != "bootstrap" or request.phase or request.check:
        return []
    inventory = short_path(request.inventory.path)
    where = "" if inventory == "inventory/homelab" else f" --inventory {inventory}"
    return [
        f"next     ./motley launch --model tiny --dataset stdlib-qa{where}   (a first try; yours: docs/reference.md)"
    ]


def stopped(progress: Progress, command: str) -> list[str]:
    """Tells where everybody was. Nothing is half done for the next run: files are written whole, apt finished by it."""
    phase, begun = progress.reached
    if phase in ("", FINDING, "preflight"):
        return ["stopped before anything was changed", f"again: {command}"]
    tasks = dict.fromkeys(node.task for node in progress.nodes.values() if node.phase == phase)
    return [
        f"stopped in {phase}: {': '.join(tasks) or begun}",
        "what a node was doing ends there soon; a change of its network is taken back unless it was proven",
        f"again: {command}   (what is done already costs seconds)",
    ]


def short_path(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path.resolve())
