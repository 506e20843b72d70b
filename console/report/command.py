"""./motley report."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from console import report_to
from console.command_line import commands_as_typed
from console.fetch import RECEIPT, no_name
from console.report.page import write_page
from console.report.run_data import NothingHappened, newest_run, read_history
from console.tasks import write_in_card
from train.errors import BadInput
from train.plan.run_name import is_name


def report(*, run: str, results: Path, to: str = "") -> int:
    if run and not is_name(run):
        raise BadInput(no_name(run))
    try:
        folder = results / run if run else newest_run(results)
        if to:
            report_to.send(to, folder)
            return 0
        commands_as_typed.remember(typed_at_fetch(folder))
        write_in_card(results, folder.name)
        print(f"report  {write_page(read_history(folder), folder / 'report.html')}")
    except NothingHappened as nothing:
        raise BadInput(str(nothing)) from None
    return 0


def typed_at_fetch(folder: Path) -> dict[str, str]:
    """The inventory of the fetch: the page's commands need it too."""
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / RECEIPT).read_text())
        if isinstance(found := kept.get("typed"), dict):
            return {name: str(value) for name, value in found.items()}
    return {}
