"""The live page's cookie, among whatever else a caller sends."""

from __future__ import annotations

import time

from console.dashboard.guard import cookie
from tests.support import pace


def test_of_two_cookies_the_nearer_folders_counts_and_a_long_one_delays_nobody() -> None:
    assert cookie("a=b; motley=mine; motley=other") == "mine"
    began = time.monotonic()
    assert cookie('motley="' + "\\" * 30_000 + '"; x') != ""
    assert time.monotonic() - began < pace.seconds(0.2)
