"""./motley report."""

from __future__ import annotations

from pathlib import Path

from console.fetch import no_name
from console.report.history import NothingHappened, newest_run, read_history
from console.report.page import write_page
from train.errors import BadInput
from train.plan.run_name import is_name


def report(*, run: str, results: Path) -> int:
    if run and not is_name(run):
        raise BadInput(no_name(run))
    try:
        folder = results / run if run else newest_run(results)
        print(f"report  {write_page(read_history(folder), folder / 'report.html')}")
    except NothingHappened as nothing:
        raise BadInput(str(nothing)) from None
    return 0
