"""What keeps nodes from reaching each other is named with its fix."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from plugins.modules import mesh_probe


def test_a_port_that_another_program_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**result: Any) -> NoReturn:
        raise SystemExit(result["msg"])

    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        params = {"name": "a", "port": port, "peers": {"b": "127.0.0.2"}, "timeout_s": 1.0}
        module = SimpleNamespace(params=params, fail_json=fails)
        monkeypatch.setattr(mesh_probe, "module_of", lambda _: module)
        with pytest.raises(SystemExit, match=rf"port {port} is taken there.*\nfix: .*sudo ss -ltnp 'sport = :{port}'"):
            mesh_probe.main()
