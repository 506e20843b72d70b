"""The machines that a router keeps: whatever happens to one, who waits for it is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from console.serve import router
from console.serve.router import Router


def test_a_machine_that_fails_in_an_unknown_way_is_out_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def free(*_: Any, **__: Any) -> str:
        return ""

    async def fails(_: Any) -> str:
        raise KeyError("recipe")

    monkeypatch.setattr(router, "needed_by", free)
    said: list[str] = []
    machine: Any = SimpleNamespace(name="odd", ready=None, cannot=False, serve=fails, end=lambda: None)

    async def waits() -> None:
        kept = Router(said.append)
        kept.use([machine])
        await asyncio.wait_for(kept.up.wait(), 10)
        await kept.close()

    asyncio.run(waits())
    assert said == ["✗ odd is out: KeyError: 'recipe'"]
