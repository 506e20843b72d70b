"""Work handed to several threads, its results in the order of the work: they do not depend on how many there are.

A tokenizer computes without Python's lock. So each thread takes a core for most of its time, and what is large, the
tokenizer and the libraries, is there once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

BYTES_EACH = 4 << 20
"""Bytes of data for which a thread more is worth its start."""
AHEAD = 2
"""Pieces of work for each thread that are begun: none waits for the next, and memory stays bounded."""
Work = TypeVar("Work")
Result = TypeVar("Result")


def in_order(make: Callable[[Work], Result], works: Iterable[Work], threads: int) -> Iterator[tuple[Work, Result]]:
    if threads == 1:
        for work in works:
            yield work, make(work)
        return
    begun: deque[tuple[Work, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for work in works:
            begun.append((work, pool.submit(make, work)))
            if len(begun) > AHEAD * threads:
                yield _first(begun)
        while begun:
            yield _first(begun)
    finally:
        pool.shutdown(cancel_futures=True)


def threads_for(size: int) -> int:
    """One for each core where so many bytes are enough to do, and one more, as one of them waits for Python's lock."""
    cores = min(len(os.sched_getaffinity(0)), size // BYTES_EACH)
    return cores + 1 if cores > 1 else 1


def _first(begun: deque[tuple[Work, Future[Result]]]) -> tuple[Work, Result]:
    work, future = begun.popleft()
    return work, future.result()
