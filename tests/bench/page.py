"""What the benchmarks share: figures that are kept, and tables in docs/BENCHMARKS.md made of all of them.

A part is measured again and again, on a machine that is otherwise idle; what was found lies in docs/benchmarks until it
is measured again, a file for each. Its table stands on the page between two marks, so that no figure is copied by hand.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.cluster import REPOSITORY
from tests.support.tables import with_lines

PAGE = REPOSITORY / "docs/BENCHMARKS.md"
KEPT = REPOSITORY / "docs/benchmarks"
TAKEN = "taken"
Figures = dict[str, Any]
Found = dict[str, list[Figures]]
"""Of each part its figures, a run each."""
There = TypeVar("There")


def bench(
    about: str | None,
    name: str,
    place: AbstractContextManager[There],
    parts: Mapping[str, Callable[[There], Figures]],
    table: Callable[[Found], list[str]],
) -> int:
    """The command line of one benchmark: some of its parts, in turns, at one place; then its table."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(parts), metavar="PART", help=f"of {' '.join(parts)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="forget what was measured of them before")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(parts):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {' '.join(parts)}")
    with place as there:
        for turn in range(args.repeats):
            for part in args.parts:
                figures = parts[part](there)
                if args.again and not turn:
                    forget(name, part)
                keep(name, part, figures)
    put(name, table(kept(name)))
    return 0


def kept(name: str) -> Found:
    return {part: runs for part, runs in _stored(name).items() if part != TAKEN}


def taken(name: str) -> str:
    """The day of its last figures."""
    return str(_stored(name).get(TAKEN, ""))


def _stored(name: str) -> dict[str, Any]:
    file = KEPT / f"{name}.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def forget(name: str, forgotten: str) -> None:
    _write(name, {part: runs for part, runs in _stored(name).items() if part != forgotten})


def keep(name: str, part: str, figures: Figures) -> None:
    print(f"{part}: {figures}", flush=True)
    everything = _stored(name) | {TAKEN: time.strftime("%d %B %Y")}
    everything.setdefault(part, []).append(figures)
    _write(name, everything)


def _write(name: str, everything: dict[str, Any]) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(everything, indent=1) + "\n")


def put(name: str, lines: Sequence[str], page: Path = PAGE) -> None:
    """Show it, and set it in its place on the page."""
    print("\n".join(lines))
    page.write_text(with_table(page.read_text(), name, lines, taken(name)))


def with_table(text: str, name: str, lines: Sequence[str], day: str) -> str:
    told = [f"Taken on {day}.", ""] if day else []
    return with_lines(text, name, [*told, *lines])


def cpu_seconds() -> float:
    """Of all programs that were waited for: other work on the machine lengthens runs, and leaves this as it is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spread(values: Sequence[float], form: str, of: str = "runs") -> str:
    """Median, range and number of repeats."""
    if len(values) == 1:
        return f"{form.format(values[0])} (one {of[:-1]})"
    median, low, high = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low}–{high}, {len(values)} {of})"


def every(runs: Sequence[Figures], what: str) -> list[Any]:
    """Of runs that have a list of it, all together."""
    return [value for run in runs for value in run[what]]


def over(one: float, other: float) -> float:
    """The ratio of the two as they are shown, so that a reader who divides finds the same."""
    return round(one, 1) / round(other, 1)


def row(what: str, values: Sequence[float], form: str, aim: str = "", of: str = "runs") -> tuple[str, str, str]:
    return what, spread(values, form, of), aim
