"""What a test at a terminal says where it waits in vain."""

import pexpect
import pytest

from tests.support.screen import Screen


def test_what_never_comes_is_told_with_all_that_was_on_the_screen() -> None:
    with Screen("sh", ["-c", "echo so far; echo and more; sleep 60"], encoding="utf-8") as screen:
        screen.expect("far")
        with pytest.raises(pexpect.TIMEOUT) as late:
            screen.expect("never", timeout=0.1)
    assert "and more" in late.value.__notes__[0]
