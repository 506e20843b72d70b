"""Work handed to several processes, its results in the order of the work: they do not depend on how many there are."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

PR_SET_PDEATHSIG = 1
AHEAD = 2
"""Pieces of work for each process that are begun: none waits for the next, and memory stays bounded."""
Work = TypeVar("Work")
Result = TypeVar("Result")


def in_order(make: Callable[[Work], Result], works: Iterable[Work], processes: int) -> Iterator[tuple[Work, Result]]:
    if processes == 1:
        for work in works:
            yield work, make(work)
        return
    # What all inherit stays one copy: a collection would write to each object, and each process fill the heap's holes.
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)
    begun: deque[tuple[Work, Future[Result]]] = deque()
    with ProcessPoolExecutor(processes, get_context("fork"), _begin, (make, os.getpid())) as pool:
        for work in works:
            begun.append((work, pool.submit(_make, work)))
            if len(begun) > AHEAD * processes:
                yield _first(begun)
        while begun:
            yield _first(begun)


def processes_for(size: int, least: int) -> int:
    """One for each core where there is enough to do. A process that has loaded torch has threads, and does not fork."""
    return max(1, min(len(os.sched_getaffinity(0)), size // least)) if sys.modules.get("torch") is None else 1


def _first(begun: deque[tuple[Work, Future[Result]]]) -> tuple[Work, Result]:
    work, made = begun.popleft()
    return work, made.result()


# What a process makes is inherited, not sent: a tokenizer is large.
_here: list[Callable[[Any], Any]] = []


def _begin(make: Callable[[Any], Any], parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _here[:] = [make]


def _make(work: Any) -> Any:
    return _here[0](work)
