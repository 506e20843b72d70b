"""What a process writes is taken line by line as it comes, and its end is told apart from an empty line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from console.infra.kubernetes.node import KubernetesNode, Saved
from console.infra.kubernetes.report import Report
from console.processes import each_line, end_group
from tests.support import pace


def writes(words: str, *, then: str = "") -> subprocess.Popen[bytes]:
    code = f"import time; print({words!r}, end='', flush=True); {then}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)


def test_each_line_and_then_the_end() -> None:
    taken: list[bytes] = []
    process = writes("one\n\ntwo")
    each_line(process, taken.append).join(pace.HANG_S)
    assert taken == [b"one\n", b"\n", b"two", b""] and process.wait() == 0


def test_a_line_is_taken_as_it_comes() -> None:
    taken: list[bytes] = []
    process = writes("one\n", then="time.sleep(600)")
    thread = each_line(process, taken.append)
    pace.until(lambda: taken == [b"one\n"], 20, "it is not taken")
    end_group(process)
    thread.join(pace.HANG_S)
    assert taken == [b"one\n", b""]


def test_pods_say_what_is_saved() -> None:
    saved = Saved()
    lines = ['event {"event": "checkpoint", "step": 7}', "event {torn", 'event {"event": "step", "step": 9}']
    with saved.heard([writes("\n".join(lines), then="time.sleep(600)"), writes("")]):
        pace.until(lambda: saved.step == 7, 20, lambda: str(saved.step))


def test_a_pods_lines_are_handed_on_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    report = Report(KubernetesNode(name="kubernetes", home="", kubectl=("kubectl",)), "qa")
    report.stream = writes('event {"event": "step"}\nnow {"time": 1.5, "on": false}\n')
    each_line(report.stream, report.lines.put)
    handed: Sequence[bytes] = [report.lines.get(timeout=pace.HANG_S) for _ in range(3)]
    for line in handed:
        report.hand_on(line)
    assert report.stream is None, "its end"
    handed_on = b'event {"event": "step"}\nnow {"time": 1.5, "on": true, "wanted": true}\n'
    assert capfdbinary.readouterr().out == handed_on
