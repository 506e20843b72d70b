"""The link itself: plain TCP around the ring."""

import pytest

from train.errors import CheckFailed
from train.measure import link


def test_whom_nobody_reaches_says_so_and_waits_no_longer(monkeypatch):
    monkeypatch.setattr(link, "WAIT_S", 0.1)
    monkeypatch.setattr(link, "send", lambda door: None)  # the other rank's packets are dropped
    with pytest.raises(CheckFailed, match=r"nobody connected to 127\.0\.0\.1 within 0 s: .*\n.*--phase firewall"):
        link.ring(lambda value: [value, value], 0, "127.0.0.1", turns=1)
