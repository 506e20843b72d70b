"""A program at a terminal, waited for at the machine's pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pexpect

from tests.support import pace


class Screen(pexpect.spawn):  # type: ignore[misc]
    def expect_list(self, patterns: Any, timeout: float = -1, *more: Any, **other: Any) -> int:
        return self._waits(super().expect_list, patterns, timeout, *more, **other)

    def expect_exact(self, patterns: Any, timeout: float = -1, *more: Any, **other: Any) -> int:
        return self._waits(super().expect_exact, patterns, timeout, *more, **other)

    def _waits(self, expect: Callable[..., int], patterns: Any, timeout: float, *more: Any, **other: Any) -> int:
        end = pace.now() + (pace.HANG_S if timeout == -1 else timeout)
        while True:
            try:
                return expect(patterns, pace.MEASURED_EVERY_S, *more, **other)
            except BaseException as ended:  # also the test's own end, by the clock
                if not isinstance(ended, pexpect.TIMEOUT) or pace.now() >= end:
                    ended.add_note(f"all that was on the screen:\n{self.before}")
                    raise
