"""Shows a playbook while it runs: a moving table on a terminal, one line per node and phase elsewhere; then the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from console.command_line.commands_as_typed import as_typed
from console.playbook.ansible_errors import Cause
from console.playbook.playbook_progress import FINDING, NodeProgress, Phase, Progress
from console.text_layout import painted
from train.safe_stdio import plain


def show(screen: Console, line: str) -> None:
    """In the colours of our marks, where the screen has any."""
    screen.print(Text.from_ansi(painted(plain(as_typed(line)))), soft_wrap=True)


class View:
    def __init__(self, screen: Console, progress: Progress, *, silent: bool = False, check: bool = False) -> None:
        self.screen, self.progress, self.silent, self.check = screen, progress, silent, check
        self.shown_count = 0
        self.started = time.monotonic()
        moving = screen.is_terminal and not silent
        self.live = (
            Live(get_renderable=self._table, console=screen, refresh_per_second=4, transient=True) if moving else None
        )

    def __enter__(self) -> View:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def update(self) -> None:
        """Tell about the phases that are over since the last time."""
        news, self.shown_count = self.progress.finished[self.shown_count :], len(self.progress.finished)
        width = max((len(name) for name in self.progress.nodes), default=0)
        if not self.silent:
            for node, phase in news:
                if line := phase_line(node, phase, width, check=self.check):
                    show(self.screen, line)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        if not self.progress.nodes:
            table.add_row("starting Ansible …")
        for node in self.progress.nodes.values():
            spent = time.monotonic() - node.since
            state = "off" if node.off else ("✗" if node.failed else f"{node.changed} changed")
            table.add_row(
                node.name,
                node.phase,
                Text(plain(node.task), overflow="ellipsis", no_wrap=True),
                f"{spent:.0f} s",
                Text.from_ansi(painted(state)),
            )
        return table


def phase_line(node: NodeProgress, name: str, width: int, *, check: bool = False) -> str:
    """`gpu-master    hostname   ✓ 1 changed   2.1 s   …`; empty where there is nothing to show."""
    phase = node.phases[name]
    if node.off:
        return f"{node.name:<{width}}  {'off':<10} {node.off}: skipped" if name == FINDING else ""
    if not phase.ran or (name == FINDING and not phase.failure):
        return ""
    words = [f"{node.name:<{width}}", f"{name:<10}", f"{phase_word(phase):<11}", f"{phase.seconds:5.1f} s"]
    files = [f"would write {', '.join(phase.files)}"] if check and phase.files else []
    return "  ".join([*words, "; ".join([*phase.says, *files])]).rstrip()


def phase_word(phase: Phase) -> str:
    if phase.failure:
        return "✗ failed"
    return f"✓ {len(phase.changed)} changed" if phase.changed else "✓"


def skipped(progress: Progress, show: Callable[[str], None]) -> None:
    for node in progress.nodes.values():
        if node.off:
            show(f"– {node.name} was skipped: {node.off}")
            show(f"    fix: {node.off_fix}")


def failures(progress: Progress, show: Callable[[str], None]) -> None:
    """Host and phase, what it was about, the cause, the fix. Nodes that fail alike are shown together."""
    alike: dict[tuple[str, str, Cause], dict[str, str]] = {}
    for node in progress.nodes.values():
        phase = node.phases.get(node.failed)
        if phase and (cause := phase.failure):
            key = (node.failed, phase.failed_task, replace(cause, output=""))
            alike.setdefault(key, {})[node.name] = cause.output
    for (name, task, cause), outputs in alike.items():
        show(f"✗ {', '.join(outputs)}  {name}: {task}")
        for line in cause.what.splitlines():
            show(f"    {line}")
        for output in filter(None, dict.fromkeys(outputs.values())):
            show(f"    its output: {output}")
        show(f"    fix: {cause.fix_on(','.join(outputs))}")
