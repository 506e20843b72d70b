"""The Role of examples/ is what a run takes: each call of kubectl is allowed by it, and it allows no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from console.infra.kubernetes import files, plan, start
from console.infra.kubernetes import node as kubernetes
from console.infra.kubernetes.cluster import Cluster
from console.infra.kubernetes.report import Report
from console.infra.node import Silent
from tests.support import ROOT, kube_rights
from tests.support.kube_server import NODE, PORTS, Server
from tests.unit.console.infra.kubernetes.test_launch import PLAN, SETTINGS
from train.errors import BadInput


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """What a server with a run is asked, and what is applied to it."""
    server, calls = Server(), []

    def kube(words: Any, *more: str, given: str = "", **_: Any) -> str:
        calls.append((list(more), given))
        return server(*more) if more[0] in ("get", "delete") else ""

    def popen(words: list[str], **_: Any) -> None:
        calls.append((words[1:], ""))

    monkeypatch.setattr(kubernetes.KubernetesNode, "kube", kube)
    monkeypatch.setattr(kubernetes.subprocess, "Popen", popen)
    monkeypatch.setattr(kubernetes.atexit, "register", lambda *_: None)
    monkeypatch.setattr(Cluster, "is_there", True)
    monkeypatch.setattr(kubernetes.KubernetesNode, "living", lambda *_: [])
    monkeypatch.setattr(kubernetes.PodNode, "status", lambda _: {})
    monkeypatch.setattr(kubernetes.PodNode, "runs", lambda _: {"runs": {}})
    return calls


def verbs() -> Iterator[str]:
    """Of kubectl, as they stand in the code."""
    for file in (ROOT / "console/infra/kubernetes").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "kube":
                yield from (str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant))


def test_each_call_is_allowed_and_no_right_is_spare(asked: list[tuple[list[str], str]], tmp_path: Path) -> None:
    cluster = Cluster(("kubectl",))
    file = tmp_path / "qa.yaml"
    files.write(PLAN, SETTINGS, file, PORTS, token="secret", hub_token="hub")
    with pytest.raises(BadInput, match="is a Job there already"):
        plan.try_out(PLAN, SETTINGS, cluster, PORTS)
    plan.try_out(replace(PLAN, run="another"), SETTINGS, cluster, PORTS)
    NODE.status()
    NODE.runs()
    NODE.logs(10, follow=True)
    _, job = NODE.newest()
    assert job
    NODE.waits_for(job, [])
    kubernetes.readers(NODE, job, NODE.pods(job))
    kubernetes.gone(NODE, "motley-qa-files")
    asked.append((kubernetes.PodNode(name="p", pod="p", home="", kubectl=()).command(["python"]), ""))
    NODE.stop(timeout_s=2)
    start.apply("qa", file, cluster)
    needed: set[tuple[str, str]] = set()
    for words, given in asked:
        text = Path(words[words.index("-f") + 1]).read_text() if words[0] == "apply" and not given else given
        assert not kube_rights.lacking(words, text), words
        needed |= kube_rights.needed(words, text)
    assert kube_rights.given() - needed == set()
    assert set(verbs()) - {words[0] for words, _ in asked} == {"config"}, "which asks no server"


def test_the_page_shows_the_rights_that_the_role_gives() -> None:
    _, _, table = (
        (ROOT / "docs/elsewhere.md").read_text().partition("| resources | verbs | what for |\n|---|---|---|\n")
    )
    rows = [line.split("|")[1:3] for line in table.partition("\n\n")[0].splitlines()]
    shown = {
        (verb.strip(), one.strip()) for kinds, verbs in rows for one in kinds.split(",") for verb in verbs.split(",")
    }
    assert shown == kube_rights.given()


def test_a_role_without_exec_is_said_as_such(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The run trains, and cannot be seen: status and follow say why."""
    rights = kube_rights.given() - {("create", "pods/exec"), ("get", "pods/exec")}
    monkeypatch.setattr(kube_rights, "given", lambda: rights)
    refused = kube_rights.lacking(["exec", "-i", "p", "--", "python"])
    assert 'cannot create resource "pods/exec"' in refused

    monkeypatch.setattr(kubernetes.KubernetesNode, "kube", Server())
    monkeypatch.setattr(kubernetes.PodNode, "status", Mock(side_effect=Silent(refused)))
    found = NODE.status()
    assert found["now"]["reason"] == refused and found["now"]["state"] == "not seen"

    report = Report(NODE, "qa")
    report.mute = kubernetes.PodNode(name="p", pod="p", home="", kubectl=())
    report.hand_on(b"")
    assert b'cannot create resource \\"pods/exec' in capfdbinary.readouterr().out
    report.hand_on(b'now {"time": 1.5}')
    report.hand_on(b"")
    assert b"cannot create" not in capfdbinary.readouterr().out, "it has been seen"
