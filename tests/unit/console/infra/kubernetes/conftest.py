from __future__ import annotations

from collections.abc import Callable

import pytest

from console.infra.kubernetes.node import KubernetesNode
from tests.support.kube_server import Server


@pytest.fixture
def serves(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], Server]:
    """kubectl leads to this server, and into none of its pods."""

    def give(server: Server) -> Server:
        monkeypatch.setattr(KubernetesNode, "kube", server)
        monkeypatch.setattr(KubernetesNode, "living", lambda *_: [])
        return server

    return give


@pytest.fixture
def server(serves: Callable[[Server], Server]) -> Server:
    return serves(Server())
