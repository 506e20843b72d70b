"""A real browser, for those who look at a page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, program


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = program()
    if not found and os.environ.get("MOTLEY_REQUIRE_LAB"):
        pytest.fail("a Chromium must be here: apt install chromium-headless-shell")
    if not found:
        pytest.skip("NOT RUN: no Chromium here (apt install chromium-headless-shell)")
    with Browser(found, tmp_path_factory.mktemp("browser") / "profile") as made:
        yield made


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Without what the test before has opened or been given."""
    with chromium.as_if_new():
        yield chromium
